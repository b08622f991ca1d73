"""The lines of the user's own code that ran when, as `train.py:12`.

Python functions that a trace has as ranges tell where the function begins; stacks of operators tell
the line that was running. PyTorch's backward pass runs on threads without either.
`facts.places` says which of them something comes from.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpuadvisor.domain.profile import NO_TEXT, UNKNOWN, Profile, Range
from gpuadvisor.rules.facts.intervals import IntArray, ends
from gpuadvisor.rules.facts.joins import Ran

_FRAME = re.compile(r"(?P<file>[^<>()]+\.py)\((?P<line>\d+)\): (?P<function>.*)")
"""PyTorch's way to write a frame: `train.py(12): main`."""
INSTALLED = re.compile(r"(^|/)(site-packages|dist-packages|lib/python\d[\d.]*)/|^/usr/lib/")
_OURS = "collectors/script/child/"
PACKAGES = frozenset(
    """
    accelerate apex bitsandbytes datasets deepspeed diffusers fairscale flash_attn fsspec gpuadvisor
    huggingface_hub ignite jax keras lightning lightning_fabric megatron numpy nvidia pandas peft
    PIL pytorch_lightning runpy scipy six sklearn tensorflow timm tokenizers torch torchao
    torchaudio torchdata torchmetrics torchrec torchtext torchvision tqdm transformer_engine
    transformers triton trl typing_extensions vllm wandb xformers _distutils_hack
    """.split()  # noqa: SIM905 - fifty lines otherwise
)
"""Packages that people install: PyTorch cuts paths off where they are on `sys.path`, so that an
installed file looks like the user's own."""


class Line(NamedTuple):
    """A line of the user's own code."""

    source: str
    """`file:line`."""
    function: str
    """The function that it is in."""


@dataclass(frozen=True, eq=False)
class Sources(Ran):
    """Times in which code of the user's own ran, or an operator that it called; numbers are those
    of its lines."""

    lines: tuple[Line, ...]


def own_line(frame: str) -> Line | None:
    """Return the line of a frame in the user's own code; None for any other."""
    found = _FRAME.match(frame)
    if found is None or INSTALLED.search(found["file"]) or _OURS in found["file"]:
        return None
    top = found["file"].removeprefix("./").partition("/")[0].removesuffix(".py")
    if top in sys.stdlib_module_names or top in PACKAGES:
        return None
    line = max(int(found["line"]), 1)  # a module begins at 0
    return Line(f"{found['file']}:{line}", found["function"])


def sources(profile: Profile) -> Sources:
    """Return what a profile tells of the user's own code."""
    numbers: dict[Line, int] = {}
    parts = (
        _running(profile, "ranges", "name", own_line, numbers),
        _running(profile, "operators", "stack", _of_stack, numbers),
    )
    begin, duration, process, thread, line = (
        np.concatenate(each) for each in zip(*parts, strict=True)
    )
    times = ends(begin, duration)
    return Sources(*times, process, thread, line, tuple(numbers))


def _running(
    profile: Profile,
    table: str,
    column: str,
    line_of: Callable[[str], Line | None],
    numbers: dict[Line, int],
) -> tuple[IntArray, ...]:
    """Return the rows of a table that are of the user's own code, and number their lines."""
    columns = profile.columns(table, ("begin_ns", "duration_ns", "process", "thread", column))
    texts, used = profile.header.texts, np.unique(columns[column])
    if table == "ranges":
        kind = profile.columns(table, ("kind",))["kind"]
        used = np.unique(columns[column][kind == Range.PYTHON])
    number = np.full(len(texts) + 1, UNKNOWN, np.int64)
    for text in used[(used > NO_TEXT) & (used < len(texts))].tolist():
        line = line_of(texts[text])
        if line is not None:
            number[text] = numbers.setdefault(line, len(numbers))
    of_row = number[np.clip(columns[column], UNKNOWN, len(texts))]
    rows = np.flatnonzero(of_row != UNKNOWN)
    timed = (columns[name][rows] for name in ("begin_ns", "duration_ns", "process", "thread"))
    return (*timed, of_row[rows])


def _of_stack(stack: str) -> Line | None:
    """Return the innermost line of a stack that is the user's own."""
    return next((line for frame in stack.split("\n") if (line := own_line(frame))), None)
