"""What tuning a kernel came to: where it stands on the roofline, and which parameters matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpuadvisor.domain.kernel_records import KernelResult
from gpuadvisor.reports import figures
from gpuadvisor.reports.json_fields import fields
from gpuadvisor.reports.kernel import document as kernels_document
from gpuadvisor.rules.facts.ceilings import OF_DTYPE, Ceilings, Peak
from gpuadvisor.rules.facts.roofline import MEMORY, Bound, Position, position
from gpuadvisor.tuners.kernels.parameter_importance import Importance, importances, unexplained

_ON_TENSOR_CORES = {"fp32": "tf32", "fp64": "fp64_tensor"}
"""Ceiling of what is faster than its precision's own can be: it computes on tensor cores."""
_SHOWN = 3
"""Parameters that the text names."""
_CEILING = "value unit source measured"
_POSITION = (
    "bytes_per_s flops_per_s flops_per_byte=intensity_flops_per_byte memory_share compute_share"
    " bound"
)
"""Fields in JSON, as `fields` takes them."""


@dataclass(frozen=True)
class KernelOutcome:
    """A result beside what its GPU can do."""

    result: KernelResult
    importances: tuple[Importance, ...]
    """Parameters with more than one value that was timed, what explains most first."""
    default: Position | None = None
    """Where the default stands; None where it was not proven against, or the kernel file names
    neither bytes nor operations."""
    best: Position | None = None
    """Where the best point stands; None where nothing was proven faster."""
    memory: Peak | None = None
    compute: Peak | None = None
    precision: str = ""
    """That of `compute`."""


def outcome(result: KernelResult, ceilings: Ceilings) -> KernelOutcome:
    """Return a result with its positions and importances; evaluations must be there for these."""
    found = importances(result.parameters, result.evaluations)
    if result.useful_bytes is None and result.useful_flops is None:
        return KernelOutcome(result, found)
    precision = _precision(result, ceilings)
    both = result.default_ms, (result.best_ms if result.best is not None else None)
    places = [_placed(result, time_ms, precision, ceilings) for time_ms in both]
    return KernelOutcome(
        result,
        found,
        places[0],
        places[1],
        ceilings.get(MEMORY) if result.useful_bytes is not None else None,
        ceilings.get(precision) if result.useful_flops is not None else None,
        precision,
    )


def _precision(result: KernelResult, ceilings: Ceilings) -> str:
    precision = OF_DTYPE.get(result.dtype, "")
    peak, times_ms = ceilings.get(precision), filter(None, (result.best_ms, result.default_ms))
    fastest_ms = min(times_ms, default=None)
    if peak is None or fastest_ms is None or result.useful_flops is None:
        return precision
    is_beyond = 1e3 * result.useful_flops / fastest_ms > peak.value
    return _ON_TENSOR_CORES.get(precision, precision) if is_beyond else precision


def _placed(
    result: KernelResult, time_ms: float | None, precision: str, ceilings: Ceilings
) -> Position | None:
    if time_ms is None:
        return None
    values = ceilings.values()
    return position(time_ms / 1e3, result.useful_flops, result.useful_bytes, precision, values)


# -- text and JSON ---------------------------------------------------------------------------------


def lines(found: KernelOutcome) -> Iterator[str]:
    """Yield what follows the text of the result."""
    where = roofline_sentence(found)
    if where:
        yield f"  {where}"
    told = [each for each in found.importances if each.share is not None][:_SHOWN]
    if told:
        shares = ", ".join(f"{each.parameter} {each.share or 0:.0%}" for each in told)
        rest = unexplained(found.importances) or 0.0
        yield f"  what makes times differ: {shares}; not of one parameter alone: {rest:.0%}"


def roofline_sentence(found: KernelOutcome) -> str:
    """Return how near the best point, else the default, is to what the GPU can do; or ``."""
    at = found.best or found.default
    if at is None:
        return ""
    shares = [
        f"{share:.0%} of the {figures.rate(peak.value, unit)} {of} ({_source(peak)})"
        for share, peak, unit, of in (
            (at.memory_share, found.memory, "B/s", "of its memory"),
            (at.compute_share, found.compute, "FLOP/s", f"in {found.precision}"),
        )
        if share is not None and peak is not None
    ]
    if not shares:
        return ""
    bound = "" if at.bound is Bound.UNKNOWN else f": bound by {at.bound}"
    return f"it reaches {' and '.join(shares)}{bound}"


def _source(peak: Peak) -> str:
    return "measured" if peak.is_measured else f"{peak.source}, not measured"


def document(outcomes: Sequence[KernelOutcome]) -> dict[str, Any]:
    """Return the JSON of all results, with what was made of each."""
    whole = kernels_document.document([each.result for each in outcomes])
    for entry, found in zip(whole["kernels"], outcomes, strict=True):
        entry.update(_added(found))
    return whole


def _added(found: KernelOutcome) -> dict[str, Any]:
    result = found.result
    capability = result.compute_capability
    return {
        "file": result.file or None,
        "started": result.started or None,
        "language": result.language or None,
        "objective": str(result.objective),
        "compute_capability": figures.capability(capability),
        "useful_bytes": result.useful_bytes,
        "useful_flops": result.useful_flops,
        "roofline": _roofline(found),
        "parameters": [
            {
                "name": each.parameter,
                "share": each.share,
                "values": [
                    {"value": v.value, "points": v.points, "cost": v.cost} for v in each.values
                ],
            }
            for each in found.importances
        ],
    }


def _roofline(found: KernelOutcome) -> dict[str, Any] | None:
    if found.memory is None and found.compute is None:
        return None
    return {
        "precision": found.precision or None,
        "memory_ceiling": found.memory and fields(found.memory, _CEILING),
        "compute_ceiling": found.compute and fields(found.compute, _CEILING),
        "default": found.default and fields(found.default, _POSITION),
        "best": found.best and fields(found.best, _POSITION),
    }
