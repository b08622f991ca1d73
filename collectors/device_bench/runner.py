"""Run the measuring program in the user's Python, and read what it says."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any

from gpuadvisor.collectors import programs
from gpuadvisor.collectors.interpreter import locate
from gpuadvisor.collectors.nvml import library as nvml
from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.errors import AdvisorError, MissingError, UsageError

TIMEOUT_S = 300.0
"""Limit of a measurement, which takes 20 to 40 s; a slow GPU and a cold disk make it longer."""
_THOROUGH = {"repeats": 7, "sample_s": 0.1}
_QUICK = {"repeats": 3, "sample_s": 0.02}


@dataclass(frozen=True)
class Clocks:
    """A GPU's highest clocks and the width of its memory's bus; None where NVML does not say."""

    sm_hz: float | None = None
    memory_hz: float | None = None
    bus_width_bits: int | None = None


@dataclass(frozen=True)
class MeasuredRate:
    """What a device was measured to reach."""

    quantity: str
    """`dram`, `bf16`, `host_to_device_pinned`, `launches`, ..."""
    value: float
    """Median of the repeats."""
    unit: str
    """`bytes/s`, `flop/s`, `op/s`, `1/s` or `s`."""
    low: float
    high: float
    repeats: int
    how: Mapping[str, Any] = field(default_factory=dict)
    """Sizes with which it was measured."""

    @property
    def spread(self) -> float:
        """The span from the lowest to the highest, as a part of the median."""
        return (self.high - self.low) / self.value if self.value else 0.0


@dataclass(frozen=True)
class BenchResult:
    """All that was measured on a device."""

    device: DeviceLimits
    clocks: Clocks
    torch: str
    """Version of torch."""
    rates: tuple[MeasuredRate, ...]
    unavailable: Mapping[str, str]
    """Quantity to why it could not be measured."""
    seconds: float
    began_unix_s: float


_REFUSALS = {"failed": MissingError, "torchless": UsageError}


def bench_device(
    python: str,
    gpu: int = 0,
    *,
    quick: bool = False,
    device: str | None = None,
    most_bytes: int | None = None,
    sides: tuple[int, ...] | None = None,
    on_event: Callable[[Mapping[str, Any]], None] = lambda event: None,
    timeout_s: float = TIMEOUT_S,
) -> BenchResult:
    """Measure a GPU by torch's number, or another `device` of torch such as `cpu`.

    `most_bytes` and `sides` make buffers and matrices smaller. Raises MissingError where there is
    no GPU, UsageError where that Python has no torch, AdvisorError where there is no end. No
    process is left behind.
    """
    settings = {
        **(_QUICK if quick else _THOROUGH),
        "device": device or f"cuda:{gpu}",
        "most_bytes": most_bytes,
        "sides": sides,
    }
    began_s, began_unix_s = time.monotonic(), time.time()
    events = _events(locate(python), settings, on_event, timeout_s)
    described = next((e for e in events if e["event"] == "device"), {})
    limits = _limits(described, gpu)
    return BenchResult(
        limits,
        clocks(limits.uuid),
        described.get("torch", ""),
        tuple(
            MeasuredRate(**{name: part for name, part in event.items() if name != "event"})
            for event in events
            if event["event"] == "rate"
        ),
        {e["quantity"]: e["reason"] for e in events if e["event"] == "unavailable"},
        time.monotonic() - began_s,
        began_unix_s,
    )


def _events(
    path: str,
    settings: dict[str, Any],
    on_event: Callable[[Mapping[str, Any]], None],
    timeout_s: float,
) -> list[dict[str, Any]]:
    source = Path(__file__).with_name("program.py").read_text("utf-8")
    read, write = os.pipe()
    with os.fdopen(read, encoding="utf-8", errors="replace") as lines:
        try:
            with os.fdopen(write, "wb") as events:  # then the program alone keeps it open
                command = [path, "-c", source, json.dumps(settings)]
                # "/", so that no `json.py` of the current folder is imported
                running = programs.Running(command, events, "/")
        except OSError as error:
            raise AdvisorError(f"{path} cannot be run: {error.strerror}") from error
        timer = Timer(timeout_s, running.kill)
        timer.start()
        found: list[dict[str, Any]] = []
        try:
            for line in lines:
                found.append(json.loads(line))
                on_event(found[-1])
            ended = running.wait(timeout_s)
        finally:
            is_late = not timer.is_alive()
            timer.cancel()
            running.end()
    return _complete(found, ended, path, timeout_s, is_late=is_late)


def _complete(
    events: list[dict[str, Any]],
    ended: programs.Ended,
    path: str,
    timeout_s: float,
    *,
    is_late: bool,
) -> list[dict[str, Any]]:
    """Return the events of a run that got to its end."""
    last = events[-1] if events else {"event": "silence"}
    if last["event"] == "done":
        return events
    if last["event"] in _REFUSALS:
        raise _REFUSALS[last["event"]](
            f"{path} cannot measure it, because {last['reason']}: "
            "give a Python whose torch has the GPU with --python"
        )
    if is_late:
        raise AdvisorError(
            f"the device was not measured within {timeout_s:g} s: end what else runs on it, or try "
            "--quick"
        )
    why = programs.why(ended, timeout_s)
    raise AdvisorError(f"measuring failed after {len(events)} results: {why}")


def _limits(event: Mapping[str, Any], gpu: int) -> DeviceLimits:
    capability, uuid = event.get("compute_capability"), event.get("uuid")
    if uuid and not uuid.startswith(("GPU-", "MIG-")):
        uuid = f"GPU-{uuid}"  # torch leaves out the prefix
    return DeviceLimits(
        index=gpu,
        name=event.get("name", ""),
        compute_capability=None if capability is None else (capability[0], capability[1]),
        sm_count=event.get("multiprocessors"),
        memory_bytes=event.get("memory_bytes"),
        l2_bytes=event.get("l2_bytes"),
        uuid=uuid,
    )


def clocks(uuid: str | None) -> Clocks:
    """Return a GPU's highest clocks; it never raises."""
    if uuid is not None:
        with suppress(nvml.QueryError):
            return nvml.query(lambda library: _ask(library, uuid))
    return Clocks()


def _ask(library: Any, uuid: str) -> Clocks:
    gpu = library.nvmlDeviceGetHandleByUUID(uuid)

    def highest(kind: int) -> float | None:
        mhz = nvml.read(library, "nvmlDeviceGetMaxClockInfo", gpu, kind)
        return None if not mhz else mhz * 1e6

    return Clocks(
        highest(library.NVML_CLOCK_SM),
        highest(library.NVML_CLOCK_MEM),
        nvml.read(library, "nvmlDeviceGetMemoryBusWidth", gpu),
    )
