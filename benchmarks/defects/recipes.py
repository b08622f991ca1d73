"""How a program is written: what it computes, and everything that can be done well or badly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """One program; but for its first five fields the defaults are how it should be written."""

    family: str
    size: int = 1
    """0, 1 or 2: widths and batches."""
    depth: int = 4
    """Blocks of the model."""
    seed: int = 0
    trains: bool = True

    precision: str = "bf16"
    """`bf16`, `autocast` (to bf16), `tf32`, `fp32` (no tensor cores) or `fp64`."""
    channels_last: bool = True
    fused_attention: bool = True
    fused_recurrence: bool = True
    """cuDNN's layer over all times, or a cell for each."""
    fused_activation: bool = True
    """One kernel, or the formula by hand."""
    narrower: int = 0
    """By how much inner widths miss a multiple of 64."""

    optimizer: str = "fused"
    """`fused`, `foreach` or `loop`."""
    rows: int = 100_000
    """Of the embedding table of a recommender."""
    sparse: bool = False
    """Whether its gradient is."""
    zeroes: bool = False
    """Whether gradients are filled with zeros, not dropped."""
    recomputes: bool = False
    """Whether activations are computed again for the backward pass."""
    pieces: int = 1
    """Pieces of a batch that are computed one after the other."""
    batch_divisor: int = 1
    """By which the batch is smaller than it should be."""

    data: str = "resident"
    """Where batches come from: `resident` on the GPU, `pinned` or `pageable` memory, `loader`."""
    workers: int = 8
    batch_ms: float = 0.0
    """Time of one process for making a batch."""
    waits_for_storage: bool = False
    """Whether it is spent waiting rather than computing."""
    scalars: int = 0
    """Values that are copied to the GPU one by one in each step."""
    to_host: bool = False
    """Whether all outputs are copied to the host."""

    sync: str = ""
    """What makes the host wait: `item`, `synchronize`, `check` after each block, `gradients` for
    each parameter, `loss` for each piece."""
    host_ms: float = 0.0
    """Python between steps."""
    empties_cache: bool = False
    compiled: str = ""
    """`whole`, or `broken` by a value that Python looks at in each block."""
