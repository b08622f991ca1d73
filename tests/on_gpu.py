"""Traces of the CPU, as if what they compute had run on a GPU.

A recording without a GPU has all that torch's profiler says of the host: operators, their sequence
numbers, ranges. With a GPU each operator that computes launches a kernel, and autograd runs the
backward pass on a thread of its own.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.facts.summary import Facts

ONE_KERNEL = ("aten::addmm", "aten::mm", "aten::_foreach_")
"""Operators that launch one kernel, whatever they call on a CPU."""
NO_KERNEL = {
    f"aten::{name}"
    for name in (
        "t", "transpose", "as_strided", "view", "expand", "detach", "detach_", "empty", "to",
        "empty_like", "empty_strided", "result_type", "resolve_conj", "item", "select", "squeeze",
        "_local_scalar_dense", "lift_fresh", "broadcast_tensors", "unbind", "is_nonzero",
    )
} | {"detach", "detach_"}  # fmt: skip
ENGINE = "autograd::engine::evaluate_function"
BACKWARD_THREAD = 2
RUNS_US, LATENCY_US = 2.0, 2.0


def on_gpu(path: Path, folder: Path, *, autograd: bool = True, numbered: bool = True) -> Facts:
    """Return the facts of such a trace, which is written to a folder; without what tells that it
    was autograd that ran something, or without the sequence numbers of operators."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    events = list(_events(document["traceEvents"]))
    for event in events:
        if not numbered:
            event.get("args", {}).pop("Sequence number", None)
            event.get("args", {}).pop("Fwd thread id", None)
        if not autograd:
            event["name"] = event["name"].removeprefix(f"{ENGINE}: ")
    document["traceEvents"] = events
    document["deviceProperties"] = [{"id": 0, "name": "NVIDIA H200", "numSms": 132}]
    written = folder / "trace.json"
    written.write_text(json.dumps(document))
    return Facts(read_profile(written))


def _events(recorded: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    recorded.sort(key=lambda event: (event["ts"], -event["dur"]))
    backward, taken, free = 0.0, 0.0, 0.0
    for number, event in enumerate(recorded):
        begin, end, name = event["ts"], event["ts"] + event["dur"], event["name"]
        if name.startswith(ENGINE):
            backward = max(backward, end)
        if begin < backward and event["cat"] == "cpu_op":
            event["tid"] = BACKWARD_THREAD
        yield event
        if event["cat"] != "cpu_op" or begin < taken or name in NO_KERNEL:
            continue
        follows = recorded[number + 1] if number + 1 < len(recorded) else None
        if not name.startswith(ONE_KERNEL) and follows is not None and follows["ts"] < end:
            continue
        taken, correlation = end, number + 1
        call = {"ts": begin + event["dur"] / 2, "dur": event["dur"] / 4, "args": {}}
        free = max(free, call["ts"] + call["dur"] + LATENCY_US)
        yield {
            **call, "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1,
            "tid": event["tid"], "args": {"correlation": correlation},
        }  # fmt: skip
        yield {
            "ph": "X", "cat": "kernel", "name": f"at::native::{name}", "pid": 0, "tid": 7,
            "ts": free, "dur": RUNS_US,
            "args": {
                "correlation": correlation, "device": 0, "stream": 7,
                "grid": [64, 1, 1], "block": [256, 1, 1],
            },
        }  # fmt: skip
        free += RUNS_US
