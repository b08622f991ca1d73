"""The defects: what is done badly, in which families, and which rules name it.

A defect is a few fields of a `Recipe`. Where several values stand in a tuple, the pair's seed picks
one, so that a defect costs now much and now next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TRAINED = ("convolution", "transformer", "recurrent", "graph", "recommender", "mixed")
ALL = (*TRAINED, "inference")
FEW_SAMPLES = ("convolution", "transformer", "recurrent", "mixed", "inference")
"""Families whose batches have so few samples that a loader can take time for each."""
ACTIVATED = ("convolution", "transformer", "graph", "recommender", "mixed", "inference")
BY_LAUNCHING = ("launch_bound", "cuda_graphs", "host_bound")
BY_WIDTH = ("transformer", "graph", "recommender", "mixed", "inference")
"""Families of layers that multiply matrices of a width that one chooses."""


@dataclass(frozen=True)
class Defect:
    """One thing that is done badly."""

    bad: Mapping[str, tuple[Any, ...]]
    """Fields of the defective program; the cured one has them as they should be."""
    accepts: tuple[str, ...]
    """Rules any of which names it; empty where none of ours can yet."""
    families: tuple[str, ...] = ALL
    both: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Fields of both programs."""
    cured: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Fields of the cured program, where it differs from how programs are."""
    every: int = 1
    """Only one round of so many has it: no rule names it, or it takes long."""
    on_cpu: bool = False
    """Whether it costs something where there is no GPU, too."""
    alone: bool = False
    """Whether its forms are timed one after the other, and not by turns: what is slow is slower
    while another process has the GPU."""


def _defect(accepts: str, bad: Mapping[str, Any], **more: Any) -> Defect:
    """Return a defect with single values made tuples, and rules in words."""
    for name in ("both", "cured"):
        more[name] = {key: _tuple(each) for key, each in more.get(name, {}).items()}
    return Defect({key: _tuple(each) for key, each in bad.items()}, tuple(accepts.split()), **more)


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


LOADED = {"data": "loader", "batch_ms": (5.0, 15.0, 40.0), "waits_for_storage": (True, False)}
_LAUNCHES = " ".join(BY_LAUNCHING)

DEFECTS: dict[str, Defect] = {
    "values_read": _defect("sync_in_loop", {"sync": "item"}),
    "values_checked": _defect("sync_in_loop", {"sync": "check"}),
    "synchronised": _defect("sync_in_loop", {"sync": "synchronize"}),
    "gradients_logged": _defect("sync_in_loop", {"sync": "gradients"}, families=TRAINED),
    "losses_read": _defect(
        "sync_in_loop", {"sync": "loss"}, families=TRAINED, both={"pieces": (4, 8)}
    ),
    "no_workers": _defect(
        "input_bound", {"workers": 0}, families=FEW_SAMPLES, both=LOADED, on_cpu=True
    ),
    "few_workers": _defect(
        "input_bound", {"workers": (1, 2)}, families=FEW_SAMPLES, both=LOADED, on_cpu=True
    ),
    "pageable_batches": _defect(
        "pageable_copies exposed_copies",
        {"data": "pageable"},
        families=("convolution", "recurrent", "graph", "recommender", "mixed"),
        cured={"data": "pinned"},
    ),
    "scalars_sent": _defect("many_small_copies sync_in_loop", {"scalars": (16, 64, 256)}),
    "outputs_fetched": _defect("pageable_copies exposed_copies sync_in_loop", {"to_host": True}),
    "doubles": _defect(
        "fp64_by_accident", {"precision": "fp64"}, cured={"precision": "tf32"}, every=3, on_cpu=True
    ),
    # Not `product_below_roof`: it compares a product with the rate of its own type, so that what it
    # finds beside this defect is another one, and its cures leave the tensor cores unused.
    "no_tf32": _defect(
        "tf32_off tensor_cores_unused", {"precision": "fp32"}, cured={"precision": "tf32"}
    ),
    "no_autocast": _defect(
        "mixed_precision_off", {"precision": "tf32"}, cured={"precision": "autocast"}
    ),
    "formula_by_hand": _defect(
        "unfused_elementwise", {"fused_activation": False}, families=ACTIVATED, on_cpu=True
    ),
    "naive_attention": _defect(
        "unfused_attention",
        {"fused_attention": False},
        families=("transformer", "mixed"),
        on_cpu=True,
    ),
    "looping_optimizer": _defect(
        "unfused_optimizer", {"optimizer": "loop"}, families=TRAINED, on_cpu=True
    ),
    "foreach_optimizer": _defect("unfused_optimizer", {"optimizer": "foreach"}, families=TRAINED),
    "channels_first": _defect(
        "layout_conversion", {"channels_last": False}, families=("convolution", "mixed")
    ),
    # `product_below_roof` names the slow product with its odd size, which is where one looks first.
    "odd_widths": _defect(
        "misaligned_gemm product_below_roof", {"narrower": (1, 3, 5)}, families=BY_WIDTH
    ),
    # Beside the cured form's context on the same GPU, calls that allocate and free took 1.3 to 4
    # times as long as in the same program alone.
    "cache_emptied": _defect(
        "allocator_churn", {"empties_cache": True}, families=TRAINED, alone=True
    ),
    "slow_python": _defect("host_bound launch_bound", {"host_ms": (5.0, 15.0, 50.0)}, on_cpu=True),
    "batch_in_pieces": _defect(
        f"{_LAUNCHES} batch_too_small small_grid_in_trace launches_too_small",
        {"pieces": (8, 16, 32)},
        families=("convolution", "recurrent", "graph", "recommender", "mixed"),
        on_cpu=True,
    ),
    "cells_in_python": _defect(
        f"{_LAUNCHES} batch_too_small",
        {"fused_recurrence": False},
        families=("recurrent",),
        on_cpu=True,
    ),
    "small_batch": _defect(
        f"batch_too_small small_grid_in_trace {_LAUNCHES}",
        {"batch_divisor": (16, 64)},
        families=("convolution", "recurrent", "graph", "recommender"),
    ),
    "graph_breaks": _defect(
        f"graph_breaks {_LAUNCHES}",
        {"compiled": "broken"},
        families=("transformer", "recommender"),
        cured={"compiled": "whole"},
        every=6,
    ),
    "recomputed": _defect(
        "recomputed_activations", {"recomputes": True}, families=TRAINED, every=3, on_cpu=True
    ),
    "gradients_zeroed": _defect("", {"zeroes": True}, families=TRAINED, every=6),
    "dense_gradient": _defect(
        "dense_embedding_gradient",
        {"sparse": False},
        families=("recommender",),
        both={"rows": (1_000_000, 4_000_000)},
        cured={"sparse": True},
        every=3,
    ),
}
