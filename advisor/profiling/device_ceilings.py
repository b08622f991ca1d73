"""The results of `bench-device`: compared with what is theoretically possible, and stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from gpuadvisor.collectors.device_bench.runner import BenchResult, MeasuredRate
from gpuadvisor.domain.ceiling import Ceiling
from gpuadvisor.rules.facts.ceilings import Ceilings, theoretical

VERSION = 1
"""The version of the JSON document."""
_COMPARED_WITH = {"dram_add": "dram"}
"""Quantities whose theoretical ceiling has another name."""
_WORDS = {
    "dram": "copy within the device",
    "dram_add": "add two buffers",
    "dram_strided": "copy every 128th byte's float",
    "dram_random": "gather random floats",
    "host_to_device_pinned": "host to device, pinned",
    "host_to_device_pageable": "host to device, pageable",
    "device_to_host_pinned": "device to host, pinned",
    "device_to_host_pageable": "device to host, pageable",
    "launches": "empty kernels",
    "operators": "operators of torch",
    "launch_latency": "one kernel, until the host knows",
}


def possible(result: BenchResult) -> Ceilings:
    """Return the theoretical ceilings of the device that was measured."""
    clocks = result.clocks
    device = replace(result.device, clock_hz=clocks.sm_hz)
    return theoretical(device, clocks.memory_hz, clocks.bus_width_bits)


def ceilings(result: BenchResult) -> list[Ceiling]:
    """Return what was measured as the store keeps it."""
    measured = datetime.fromtimestamp(result.began_unix_s, UTC).isoformat(timespec="seconds")
    known = possible(result)
    return [
        Ceiling(
            quantity(rate, known),
            rate.value,
            rate.unit,
            measured,
            {
                "torch": result.torch,
                "low": f"{rate.low:.6g}",
                "high": f"{rate.high:.6g}",
                **{name: str(value) for name, value in rate.how.items()},
            },
        )
        for rate in result.rates
    ]


def quantity(rate: MeasuredRate, known: Ceilings) -> str:
    """Return what a rate is a ceiling of: torch multiplies doubles on tensor cores if it can."""
    return "fp64_tensor" if rate.quantity == "fp64" and known.get("fp64_tensor") else rate.quantity


def keep(result: BenchResult) -> None:
    """Store what was measured; StoreError where that fails."""
    from gpuadvisor.storage.profiles.library import open_profiles

    with open_profiles() as profiles:
        profiles.add_ceilings(result.device.uuid or "", result.device.name, ceilings(result))


def document(result: BenchResult) -> dict[str, Any]:
    """Return all of it for machines."""
    known = possible(result)
    return {
        "version": VERSION,
        "device": result.device.name,
        "uuid": result.device.uuid,
        "torch": result.torch,
        "seconds": round(result.seconds, 1),
        "rates": [_entry(rate, known) for rate in result.rates],
        "not_measured": dict(result.unavailable),
    }


def table(result: BenchResult) -> list[str]:
    """Return lines: measured, its spread, what is theoretically possible, and the ratio."""
    device, known = result.device, possible(result)
    facts = [device.name, f"torch {result.torch}"]
    if device.compute_capability:
        facts.insert(1, "compute capability {}.{}".format(*device.compute_capability))
    lines = [
        ", ".join(facts),
        "",
        f"{'':<34}{'measured':>14}  {'spread':>6}{'possible':>14}  ratio",
    ]
    for rate in result.rates:
        entry = _entry(rate, known)
        bound = entry["theoretical"]
        line = f"{_title(rate.quantity):<34}{_rate(rate.value, rate.unit):>14}  {rate.spread:>6.1%}"
        if bound is not None:
            line += f"{_rate(bound, rate.unit):>14}  {entry['ratio']:>5.0%}"
        lines.append(line)
    for name, reason in result.unavailable.items():
        lines.append(f"{_title(name):<34}not measured: {reason}")
    return lines


def _entry(rate: MeasuredRate, known: Ceilings) -> Mapping[str, Any]:
    name = quantity(rate, known)
    bound = known.get(_COMPARED_WITH.get(name, name))
    return {
        **asdict(rate),
        "quantity": name,
        "theoretical": None if bound is None else bound.value,
        "theoretical_source": None if bound is None else bound.source,
        "ratio": None if bound is None else rate.value / bound.value,
    }


def _title(name: str) -> str:
    return _WORDS.get(name, f"matmul {name}")


def _rate(value: float, unit: str) -> str:
    """Return a rate with its decimal prefix: `3.01 TB/s`."""
    if unit == "s":
        return f"{1e6 * value:.2f} us"
    scales = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
    scale, prefix = next((pair for pair in scales if value >= pair[0]), scales[-1])
    short = {"bytes/s": "B/s", "flop/s": "FLOP/s", "op/s": "OP/s", "1/s": "/s"}[unit]
    return f"{value / scale:.4g} {prefix}{short}"
