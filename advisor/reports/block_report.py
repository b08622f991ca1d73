"""A suggested block as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.reports import figures, strict_json
from gpuadvisor.rules.facts.block_choice import BlockSuggestion

SCHEMA_VERSION = 1


def lines(found: BlockSuggestion) -> Iterator[str]:
    """Yield the configuration, its reasons, and what is as good."""
    sm = found.occupancy.architecture
    yield f"block {_sides(found.block)}, grid {_sides(found.grid)} on {sm.name}"
    yield from (f"  - {reason}" for reason in found.reasons)
    if found.alike:
        yield f"  as good by these reasons: {', '.join(map(_sides, found.alike))}"
    yield "  not measured: `gpuadvisor tune-kernel` finds out what is fastest"


def as_json(found: BlockSuggestion) -> str:
    """Return all of it for machines."""
    now = found.occupancy
    return strict_json.text(
        {
            "schema_version": SCHEMA_VERSION,
            "compute_capability": figures.capability(now.architecture.compute_capability),
            "block": list(found.block),
            "grid": list(found.grid),
            "threads": found.threads,
            "occupancy": now.fraction,
            "blocks_per_sm": now.blocks,
            "limiters": list(now.limiters),
            "filled": found.filled,
            "coalesced": found.coalesced,
            "waves": found.waves,
            "reasons": list(found.reasons),
            "alike": [list(block) for block in found.alike],
        }
    )


def _sides(sides: tuple[int, int, int]) -> str:
    """Return `32 x 8`, without sides of 1 at the end."""
    shown = list(sides)
    while len(shown) > 1 and shown[-1] == 1:
        shown.pop()
    return " x ".join(f"{side:,}" for side in shown)
