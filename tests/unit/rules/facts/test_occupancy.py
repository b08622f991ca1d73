"""Occupancy: known launches, NVIDIA's header, Nsight Compute and Kineto as witnesses."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

import gpuadvisor
from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.errors import UsageError
from gpuadvisor.rules.facts.gpu_specs import ARCHITECTURES, KIB, architecture
from gpuadvisor.rules.facts.occupancy import AXES, LaunchConfig, curve, fit, next_steps

DATA = Path(__file__).parents[3] / "data"
PROFILES = DATA / "profiles"
HEADER_NO_LIMIT = 2**31 - 1
KINETO_CAP_BYTES = 48 * KIB
"""Above it Kineto's own estimate is always 0: it asks as if a kernel had not opted in."""


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "blocks", "percent", "limiters"),
    [
        ("7.0", 1024, 64, 0, 1, 50.0, ("registers",)),
        ("7.5", 256, 32, 0, 4, 100.0, ("warps",)),
        ("7.5", 32, 16, 0, 16, 50.0, ("blocks",)),
        ("8.0", 256, 32, 0, 8, 100.0, ("warps", "registers")),
        ("8.0", 128, 64, 40 * KIB, 4, 25.0, ("shared_memory",)),
        ("8.6", 256, 40, 0, 6, 100.0, ("warps", "registers")),
        ("8.9", 32, 32, 0, 24, 50.0, ("blocks",)),
        ("9.0", 384, 168, 100 * KIB, 1, 18.75, ("registers",)),
        ("9.0", 128, 32, 113 * KIB, 2, 12.5, ("shared_memory",)),
        ("10.0", 33, 1, 0, 32, 100.0, ("warps", "blocks")),
        ("12.0", 512, 32, 99 * KIB, 1, 100 / 3, ("shared_memory",)),
    ],
)
def test_known_launches(capability, threads, registers, shared, blocks, percent, limiters):
    found = gpuadvisor.occupancy(capability, threads, registers, shared)
    assert found.blocks == blocks
    assert 100 * found.fraction == pytest.approx(percent)
    assert found.limiters == limiters
    assert found.impossible is None


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "words"),
    [
        (1025, 0, 0, "1,025 threads, but at most 1,024"),
        (32, 256, 0, "256 registers, but at most 255"),
        (1024, 65, 0, "1,024 threads of 65 registers"),
        (32, 0, 227 * KIB + 1, "232,449 bytes of shared memory, but at most 232,448"),
    ],
)
def test_impossible_launches_say_why(threads, registers, shared, words):
    found = gpuadvisor.occupancy((9, 0), threads, registers, shared)
    assert (found.blocks, found.fraction) == (0, 0.0)
    assert words in found.impossible


@pytest.mark.parametrize(
    "arguments",
    [("9.0", 0), ("9.0", -32), ("9.0", 32, -1), ("9.0", 32, 1, -1), ("9.1", 32), ("H100", 32)],
)
def test_figures_that_no_launch_has_are_refused(arguments):
    with pytest.raises(UsageError):
        gpuadvisor.occupancy(*arguments)


def test_a_carveout_is_taken_up_to_the_next_size_and_to_what_a_block_needs():
    def blocks(carveout):
        launch = gpuadvisor.occupancy("8.0", 128, 16, 20 * KIB, carveout_bytes=carveout)
        return launch.limits["shared_memory"]

    assert blocks(None) == 7  # 164 KiB / 21 KiB
    assert blocks(60 * KIB) == blocks(64 * KIB) == 3
    assert blocks(0) == 1  # 32 KiB


def test_a_device_overrides_its_compute_capability():
    half = DeviceLimits(0, "half an H100", threads_per_multiprocessor=1024)
    assert gpuadvisor.occupancy("9.0", 256, limits=half).blocks == 4
    small = DeviceLimits(0, "", shared_bytes_per_multiprocessor=100 * KIB)
    assert gpuadvisor.occupancy("9.0", 32, 0, 98 * KIB, limits=small).blocks == 1
    assert gpuadvisor.occupancy("9.0", 32, 0, 100 * KIB, limits=small).impossible is not None
    for absurd in (0, -1, 2**63):
        said = DeviceLimits(0, "", threads_per_multiprocessor=absurd)
        assert gpuadvisor.occupancy("9.0", 256, limits=said).blocks == 8


def test_barriers_limit_from_hopper_on():
    assert gpuadvisor.occupancy("9.0", 32, barriers=16).limiters == ("barriers",)
    assert gpuadvisor.occupancy("8.0", 32, barriers=16).limits["barriers"] is None


def header_answers():
    document = json.loads(gzip.decompress((DATA / "occupancy_oracle.json.gz").read_bytes()))
    for row in document["rows"]:
        yield dict(zip(document["columns"], row, strict=True))


def carveout_of(answer):
    sm = ARCHITECTURES[answer["major"], answer["minor"]]
    percent = answer["carveout_percent"]
    return None if percent < 0 else percent * sm.shared_bytes // 100


def test_equals_the_answers_of_nvidias_header():
    answers = list(header_answers())
    assert len(answers) == 3000
    for answer in answers:
        found = gpuadvisor.occupancy(
            (answer["major"], answer["minor"]),
            answer["threads"],
            answer["registers"],
            answer["static_bytes"] + answer["dynamic_bytes"],
            carveout_bytes=carveout_of(answer),
            barriers=answer["barriers"],
            virtual_resources=answer["virtual_resources"],
        )
        own = {
            f"{name}_blocks": HEADER_NO_LIMIT if blocks is None else blocks
            for name, blocks in found.limits.items()
        }
        own |= {
            "error": 0,
            "active_blocks": found.blocks,
            "allocated_registers": found.registers_per_block,
            "allocated_shared_bytes": found.shared_bytes_per_block,
        }
        assert own == {name: answer[name] for name in own}, answer


def test_absurd_figures_of_a_damaged_file_fit_nowhere():
    found = gpuadvisor.occupancy("9.0", 2**62, 2**62, 2**62)
    assert (found.blocks, found.fraction, found.impossible is not None) == (0, 0.0, True)


@pytest.mark.parametrize("capability", list(ARCHITECTURES))
def test_next_steps_are_the_nearest_that_help(capability):
    sm = architecture(capability)
    chance = np.random.default_rng(1)
    for _ in range(40):
        launch = LaunchConfig(
            32 * int(chance.integers(1, 33)),
            int(chance.integers(0, 256)),
            int(chance.integers(0, sm.shared_bytes_per_block)),
        )
        now = fit(sm, launch)
        found = {tuple(s.changes): s for s in next_steps(now)}
        step = found.get(("registers_per_thread",))
        nearest = _nearest_registers(sm, now)
        assert (step and step.changes["registers_per_thread"]) == nearest
        for step in found.values():
            assert step.result.warps > now.warps


def _nearest_registers(sm, now):
    launch = now.launch
    for registers in range(launch.registers_per_thread - 1, 0, -1):
        fewer = LaunchConfig(launch.threads_per_block, registers, launch.shared_bytes_per_block)
        if fit(sm, fewer).warps > now.warps:
            return registers
    return None


def test_the_next_size_of_shared_memory_is_the_largest_that_helps():
    now = gpuadvisor.occupancy("9.0", 128, 32, 60 * KIB)
    (step,) = [s for s in next_steps(now) if "shared_bytes_per_block" in s.changes]
    size = step.changes["shared_bytes_per_block"]
    assert step.result.blocks == now.blocks + 1
    assert gpuadvisor.occupancy("9.0", 128, 32, size + 1).blocks == now.blocks


def test_registers_and_shared_memory_that_limit_alike_are_changed_together():
    steps = next_steps(gpuadvisor.occupancy("8.6", 256, 96, 40 * KIB))
    together = [s for s in steps if len(s.changes) == 2]
    assert [dict(s.changes) for s in together] == [
        {"registers_per_thread": 80, "shared_bytes_per_block": 33024}
    ]
    assert together[0].result.fraction == 0.5


def test_there_is_nothing_to_raise_at_the_top():
    assert next_steps(gpuadvisor.occupancy("9.0", 256, 32)) == ()


def test_an_impossible_launch_is_shown_the_nearest_possible_one():
    steps = next_steps(gpuadvisor.occupancy("9.0", 256, 300))
    assert [dict(s.changes) for s in steps] == [{"registers_per_thread": 255}]


@pytest.mark.parametrize("over", AXES)
def test_a_curve_goes_through_the_launch_and_over_the_whole_axis(over):
    now = gpuadvisor.occupancy("8.9", 256, 64, 16 * KIB)
    points = dict(curve(now, over))
    assert points[getattr(now.launch, over)] == now.fraction
    assert max(points) == {
        "threads_per_block": 1024,
        "registers_per_thread": 255,
        "shared_bytes_per_block": 99 * KIB,
    }.get(over)


def ncu_kernels():
    """Every kernel of the wide CSV files of Nsight Compute."""
    for path in sorted(PROFILES.rglob("*.csv*")):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            names, units, *rows = csv.reader(io.StringIO(file.read()))
        if "sm__maximum_warps_per_active_cycle_pct" not in names:
            continue
        for row in rows:
            kernel = {name: value.replace(",", "") for name, value in zip(names, row, strict=True)}
            yield path.name, kernel, dict(zip(names, units, strict=True))


def ncu_launch(kernel, units, **more):
    shared = sum(
        float(kernel[column]) * NCU_BYTES[units[column].partition("/")[0]]
        for column in (STATIC, DYNAMIC)
    )
    return gpuadvisor.occupancy(
        f"{kernel[MAJOR]}.{kernel[MINOR]}",
        int(kernel["launch__block_size"]),
        int(float(kernel["launch__registers_per_thread"])),
        round(shared),
        barriers=int(kernel.get("launch__barrier_count") or 0),
        **more,
    )


def test_equals_nsight_computes_theoretical_occupancy():
    checked = 0
    for name, kernel, units in ncu_kernels():
        reported = float(kernel["sm__maximum_warps_per_active_cycle_pct"])
        ours = 100 * ncu_launch(kernel, units).fraction
        assert ours == pytest.approx(reported, abs=1e-4), (name, kernel["ID"])
        checked += 1
    assert checked >= 20


def test_equals_each_of_nsight_computes_limits_at_the_carveout_that_it_saw():
    checked = 0
    for name, kernel, units in ncu_kernels():
        column = "launch__shared_mem_config_size"
        carveout = round(float(kernel[column]) * NCU_BYTES[units[column]])
        ours = ncu_launch(kernel, units, carveout_bytes=carveout)
        for limiter, reported in NCU_LIMITS.items():
            assert ours.limits[limiter] == float(kernel[reported]), (name, kernel["ID"], limiter)
        checked += 1
    assert checked >= 20


NCU_BYTES = {"byte": 1, "Kbyte": 1000, "Mbyte": 1e6}
NCU_LIMITS = {
    "warps": "launch__occupancy_limit_warps",
    "registers": "launch__occupancy_limit_registers",
    "shared_memory": "launch__occupancy_limit_shared_mem",
    "blocks": "launch__occupancy_limit_blocks",
}
STATIC = "launch__shared_mem_per_block_static"
DYNAMIC = "launch__shared_mem_per_block_dynamic"
MAJOR = "device__attribute_compute_capability_major"
MINOR = "device__attribute_compute_capability_minor"


class KinetoEvent(msgspec.Struct):
    cat: str = ""
    args: msgspec.Raw = msgspec.Raw(b"{}")


class KinetoTrace(msgspec.Struct, rename="camel"):
    device_properties: list[dict] = []
    trace_events: list[KinetoEvent] = []


def kineto_kernels():
    """Every kernel on an NVIDIA GPU of the traces, with its device."""
    for path in sorted(PROFILES.rglob("*.json.gz")):
        text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        trace = msgspec.json.decode(text, type=KinetoTrace)
        devices = {device["id"]: device for device in trace.device_properties}
        for event in trace.trace_events:
            if event.cat.lower() != "kernel":
                continue
            facts = msgspec.json.decode(event.args)
            device = devices.get(facts.get("device"), {})
            if "est. achieved occupancy %" in facts and "AMD" not in device.get("name", ""):
                yield path.name, device, facts


def test_kineto_agrees_where_its_estimate_is_not_wrong():
    """Its estimate is the theoretical occupancy, or less where the grid cannot fill an SM."""
    checked, wrong = 0, 0
    occupancy = functools.cache(gpuadvisor.occupancy)  # of few kernels that were launched often
    for name, device, facts in kineto_kernels():
        threads, shared = math.prod(facts["block"]), facts["shared memory"]
        capability = device["computeMajor"], device["computeMinor"]
        found = occupancy(capability, threads, facts["registers per thread"], shared)
        resident = min(found.blocks, facts["blocks per SM"])
        ours = 100 * resident * threads / (32 * found.max_warps)
        estimate = facts["est. achieved occupancy %"]
        checked += 1
        if shared > KINETO_CAP_BYTES:
            assert estimate == 0 < found.fraction
            wrong += 1
        else:
            assert abs(ours - estimate) <= 1, (name, facts)
    assert checked - wrong > 300
    assert wrong > 0
