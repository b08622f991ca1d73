"""Refuses Chrome traces of other programs, with what they seem to be.

Every trace of Kineto names its own schema beside the events (`metadata.KNOWN`). Where only the bare
events are left of it, those of a category that nobody else writes prove it. Counters do not: every
Chrome trace may have them; nor do kernels beside ONNX Runtime's own events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.collectors.kineto.batch import Output
from gpuadvisor.collectors.kineto.categories import Tables
from gpuadvisor.errors import UsageError

ANYBODYS = ("counters",)
"""Tables whose events have no category of Kineto's."""


@dataclass(frozen=True)
class _Foreign:
    what: str
    is_it: Callable[[Iterable[str], Iterable[str]], bool]
    """Tells from the names of the processes and the categories that are not Kineto's."""


_OTHERS = (
    _Foreign(
        "a timeline of TensorFlow",
        lambda processes, _: any(
            "/job:" in name or (name.startswith("/") and name.endswith((" Compute", " Tensors")))
            for name in processes
        ),
    ),
    _Foreign(
        "a trace of XLA's profiler (JAX or TensorFlow)",
        lambda processes, _: any(name.startswith(("/device:", "/host:")) for name in processes),
    ),
    _Foreign(
        "a profile of ONNX Runtime", lambda _, categories: {"Session", "Node"} <= {*categories}
    ),
    _Foreign(
        "a trace of Chrome",
        lambda processes, categories: (
            not {"Browser", "Renderer", "GPU Process"}.isdisjoint(processes)
            or any(name == "v8" or "devtools.timeline" in name for name in categories)
        ),
    ),
)


def refuse_foreign(path: Path, output: Output, tables: Tables) -> None:
    """Raise a UsageError that says what a trace without Kineto's metadata seems to be, unless its
    events prove that PyTorch wrote them."""
    processes, categories = tables.processes.names().values(), tables.other_categories
    seems = next((each.what for each in _OTHERS if each.is_it(processes, categories)), None)
    shared = (*ANYBODYS, "kernels") if seems else ANYBODYS
    if any(rows for table, rows in output.rows.items() if table not in shared):
        return
    what = f"{seems or 'a Chrome trace of another program'}, it seems, and"
    raise UsageError(
        f"{path} is {what if tables.events else 'JSON, but'} not a trace of the torch profiler: it"
        " has neither the metadata nor the events that PyTorch writes; read are traces of"
        " torch.profiler, and reports of Nsight Systems and Nsight Compute."
    )
