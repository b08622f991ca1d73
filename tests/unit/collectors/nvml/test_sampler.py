"""What the sampler reads and how it fails, by the real nvidia-ml-py on a fake driver's library."""

import pytest

from gpuadvisor.collectors.nvml.calls import CALLS
from gpuadvisor.collectors.telemetry.supervisor import SILENCE_S
from gpuadvisor.domain.metrics import GPU_METRICS, SamplingInterval

FIRST, SECOND, THIRD = (f"GPU-fa4e000{i}-0000-4000-8000-00000000000{i}" for i in (0, 1, 2))
HOUR_S = 3600


def test_every_metric_is_filled_by_one_call():
    filled = [metric for call in CALLS for metric in call.metrics]
    assert sorted(filled) == sorted(metric.name for metric in GPU_METRICS)


def test_fast_metrics_come_first_in_a_call():
    for call in CALLS:
        fast = [
            metric.interval is SamplingInterval.FAST
            for metric in GPU_METRICS
            if metric.name in call.metrics
        ]
        assert call.fast_metrics == sum(fast)
        assert set(call.metrics[: call.fast_metrics]) <= {
            metric.name for metric in GPU_METRICS if metric.interval is SamplingInterval.FAST
        }


def test_each_step_of_a_start_is_told_and_none_afterwards(play):
    """Each may take seconds, where the driver wakes its GPUs."""
    program = (
        "steps = []\n"
        "sampler = Sampler(on_step=lambda: steps.append(1), clock=lambda: clock[0])\n"
        "result = [(poll(sampler, 61), len(steps))[1] for _ in range(3)]\n"
        "sampler.close()\n"
    )
    models = {"FAKE_NVML_MODELS": "h100,h100,h100"}
    assert play(program, **models) == [4, 4, 4]  # the library, and each GPU


READ = """
sampler = start()
frames = [poll(sampler) for _ in range(3)] + [poll(sampler, 0.1, full=False)]
end = time.monotonic() + 60
while "pcie_tx_bytes_per_s" not in frames[2].samples[frames[0].gpus[1].uuid].values:
    assert time.monotonic() < end
    frames[2] = poll(sampler)
sampler.close()
result = frames
"""

H100 = {
    "gpu_utilization_pct": 100,
    "memory_utilization_pct": 50,
    "memory_used_bytes": 51312066560,
    "memory_free_bytes": 33671872512,
    "memory_reserved_bytes": 512 * 2**20,
    "memory_total_bytes": 85520809984,
    "power_w": 700.0,
    "power_instant_w": 705.0,
    "power_limit_w": 700.0,
    "energy_j": 1001.5,
    "sm_clock_mhz": 1980,
    "memory_clock_mhz": 2619,
    "sm_clock_max_mhz": 1980,
    "memory_clock_max_mhz": 2619,
    "throttle_reasons": 4,
    "performance_state": 0,
    "temperature_c": 75,
    "memory_temperature_c": 80,
    "temperature_slowdown_c": 90,
    "encoder_utilization_pct": 0,
    "decoder_utilization_pct": 0,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_replays": 3,
    "pcie_tx_bytes_per_s": 100 * 2**20,
    "pcie_rx_bytes_per_s": 200 * 2**20,
    "nvlink_tx_bytes_per_s": 2000 * 2**20,
    "nvlink_rx_bytes_per_s": 1000 * 2**20,
    "nvlink_links": 17,
    "nvlink_errors": 4,
    "graphics_active_pct": 100.0,
    "sm_active_pct": 90.0,
    "sm_occupancy_pct": 50.0,
    "tensor_active_pct": 60.0,
    "fp64_active_pct": 11.0,
    "fp32_active_pct": 12.0,
    "fp16_active_pct": 13.0,
    "dram_active_pct": 70.0,
    "power_violation_s": 1.5,
    "thermal_violation_s": 3.0,
    "board_limit_violation_s": 6.0,
    "reliability_violation_s": 9.0,
    "ecc_corrected_volatile": 10,
    "ecc_uncorrected_volatile": 0,
    "ecc_corrected_aggregate": 20,
    "ecc_uncorrected_aggregate": 21,
    "remapped_rows_corrected": 2,
    "remapped_rows_uncorrected": 1,
    "remap_pending": 0,
    "remap_failed": 0,
}


def merged(frames, uuid):
    values = {}
    for frame in reversed(frames):
        values.update(frame["samples"][uuid]["values"])
    return values


def test_values_are_in_the_units_of_the_metrics(play):
    frames = play(READ, FAKE_NVML_MODELS="h100,t4", FAKE_NVML_LOAD="busy", FAKE_NVML_NVLINKS="18")
    assert merged(frames, FIRST) == H100
    assert {
        name: absence["state"]
        for name, absence in frames[2]["samples"][FIRST]["unavailable"].items()
    } == {"fan_pct": "not_supported"}
    fast = {metric.name for metric in GPU_METRICS if metric.interval is SamplingInterval.FAST}
    assert not frames[3]["full"]
    assert {uuid: set(s["values"]) for uuid, s in frames[3]["samples"].items()} == {
        FIRST: fast,
        SECOND: fast,
    }
    assert [frame["gpus"] is None for frame in frames] == [False, True, True, True]
    assert frames[0]["gpus"][1] == {
        "uuid": SECOND,
        "index": 1,
        "name": "Tesla T4",
        "memory_total_bytes": 16106127360,
        "pci_bus_id": "00000000:11:00.0",
        "compute_capability": [7, 5],
        "parent_uuid": None,
    }

    t4, unavailable = merged(frames, SECOND), frames[2]["samples"][SECOND]["unavailable"]
    assert (t4["fan_pct"], t4["power_w"], t4["gpu_utilization_pct"]) == (30, 66.85, 95)
    assert (t4["pcie_tx_bytes_per_s"], t4["pcie_rx_bytes_per_s"]) == (1000 * 1024, 2000 * 1024)
    assert t4["nvlink_tx_bytes_per_s"] == pytest.approx(2 * 2**30, rel=0.01)
    assert t4["nvlink_rx_bytes_per_s"] == pytest.approx(4 * 2**30, rel=0.01)
    activity = {m for m in H100 if m.endswith("_active_pct") or m == "sm_occupancy_pct"}
    assert set(unavailable) == activity | {m for m in H100 if m.startswith("remap")}
    assert {absence["state"] for absence in unavailable.values()} == {"not_supported"}


NVML = "nvmlDeviceGet"
CASES = {
    # scene: {metric: what it is worth, or its state}
    f"FAULTS={NVML}PowerUsage=3": {"power_w": "not_supported", "sm_clock_mhz": 1980},
    f"FAULTS={NVML}PowerUsage=13": {"power_w": "not_supported"},
    f"FAULTS={NVML}PowerUsage=2": {"power_w": "not_supported"},
    f"FAULTS={NVML}PowerUsage=25": {"power_w": "not_supported"},
    f"FAULTS={NVML}PowerUsage=4": {"power_w": "no_permission"},
    f"FAULTS={NVML}PowerUsage=999": {"power_w": "stale"},
    f"FAULTS={NVML}PowerUsage=10": {"power_w": "stale"},
    f"FAULTS={NVML}TemperatureV=3": {"temperature_c": 75},
    f"FAULTS={NVML}TemperatureV=2": {"temperature_c": 75},
    f"FAULTS={NVML}TemperatureV=13": {"temperature_c": 75},
    f"FAULTS={NVML}TemperatureV=25": {"temperature_c": 75},
    f"FAULTS={NVML}TemperatureV=4": {"temperature_c": "no_permission"},
    f"FAULTS={NVML}TemperatureV=3,{NVML}Temperature=13": {"temperature_c": "not_supported"},
    f"FAULTS={NVML}MemoryInfo_v2=25": {
        "memory_used_bytes": 51312066560,
        "memory_reserved_bytes": "not_supported",
    },
    f"FAULTS={NVML}CurrentClocksEventReasons=13": {"throttle_reasons": 0},
    f"FAULTS={NVML}FieldValues=13": {
        "power_instant_w": "not_supported",
        "memory_temperature_c": "not_supported",
    },
    "FAULTS=186=4": {"power_instant_w": "no_permission", "memory_temperature_c": 80},
    "FAULTS=186=3,82=999": {"power_instant_w": "not_supported", "memory_temperature_c": "stale"},
    "FAULTS=gpm5=3": {"tensor_active_pct": "not_supported", "sm_active_pct": 90.0},
    "FAULTS=nvmlGpmSampleGet=999": {"tensor_active_pct": "stale", "sm_clock_mhz": 1980},
    "FAULTS=nvmlGpmQueryDeviceSupport=13": {"tensor_active_pct": "not_supported"},
    "FAULTS=nvmlEventSetCreate=3": {"power_w": 700.0},
    f"VALUES={NVML}PowerUsage=4294967295": {"power_w": "not_supported"},
    f"VALUES={NVML}TotalEnergyConsumption=18446744073709551615": {"energy_j": "not_supported"},
    f"VALUES={NVML}TotalEnergyConsumption=9223372036854775794": {"energy_j": "not_supported"},
    f"VALUES={NVML}UtilizationRates=255": {
        "gpu_utilization_pct": "not_supported",
        "memory_utilization_pct": 50,
    },
    f"VALUES={NVML}MemoryInfo_v2=18446744073709551615": {"memory_used_bytes": "not_supported"},
    f"VALUES={NVML}MemoryInfo_v2=214748364800": {  # of 80 GB
        "memory_used_bytes": "not_supported",
        "memory_free_bytes": "not_supported",
    },
    f"VALUES={NVML}PowerUsage=0": {"power_w": "not_supported"},
    f"VALUES={NVML}PowerUsage=4294967200": {"power_w": "not_supported"},
    f"VALUES={NVML}TemperatureV=255": {"temperature_c": "not_supported"},
    f"VALUES={NVML}PerformanceState=32": {"performance_state": "not_supported"},
    f"VALUES={NVML}RemappedRows=4294967295": {
        "remapped_rows_corrected": "not_supported",
        "remapped_rows_uncorrected": 1,
    },
    "VALUES=82=2147483632": {"memory_temperature_c": "not_supported", "power_instant_w": 705.0},
    "VALUES=gpm2=200": {"sm_active_pct": "not_supported", "tensor_active_pct": 60.0},
}


def test_each_failure_has_the_state_that_it_deserves(play):
    program = f"""
result = []
for case in {list(CASES)}:
    name, _, setting = case.partition("=")
    scene(LOAD="busy", MODELS="h100", **{{name: setting}})
    sampler = start()
    first, second = poll(sampler), poll(sampler)
    assert second.problem is None, second.problem
    samples = [list(frame.samples.values())[0] for frame in (first, second)]
    known = {{name: absence.state for name, absence in samples[1].unavailable.items()}}
    result.append({{**samples[0].values, **samples[1].values, **known}})
    sampler.close()
"""
    found = dict(zip(CASES, play(program), strict=True))
    assert {
        case: {metric: found[case].get(metric) for metric in expected}
        for case, expected in CASES.items()
    } == CASES


def test_a_value_that_was_good_is_stale_since_then_and_says_why(play):
    program = """
scene(MODELS="h100")
sampler = start()
poll(sampler)
scene(MODELS="h100", FAULTS="nvmlDeviceGetPowerUsage=999,nvmlDeviceGetEnforcedPowerLimit=999")
broken = [poll(sampler), poll(sampler), poll(sampler, 0.1, full=False)]
scene(MODELS="h100")
result = [*broken, poll(sampler)]
"""
    first, second, fast, mended = [f["samples"][FIRST] for f in play(program)]
    absence = first["unavailable"]["power_w"]
    assert (absence["state"], absence["since_s"]) == ("stale", 1e9 + 1)
    assert "Unknown Error" in absence["reason"]
    assert second["unavailable"]["power_w"] == absence
    assert "power_w" not in fast["values"]
    assert mended["values"]["power_w"] == 70.0
    assert "power_w" not in mended["unavailable"]


def test_what_is_not_supported_is_asked_again_hourly_and_what_is_not_permitted_each_minute(play):
    program = f"""
faults = "nvmlDeviceGetPowerUsage=3,nvmlDeviceGetUtilizationRates=4"
scene(MODELS="h100", FAULTS=faults)
sampler = start()
poll(sampler)
scene(MODELS="h100")
later = [poll(sampler, after_s).samples["{FIRST}"] for after_s in (58, 3, {HOUR_S - 63}, 3)]
result = [[name in s.values for name in ("power_w", "gpu_utilization_pct")] for s in later]
"""
    assert play(program) == [[False, False], [False, True], [False, True], [True, True]]


def test_slow_metrics_of_several_gpus_are_spread_over_the_sweeps(play):
    program = """
scene(MODELS=",".join(["h100"] * 8))
sampler = start()
result = [[list(s.values) for s in poll(sampler).samples.values()] for _ in range(31)]
"""
    first, *others = play(program)
    slow = [
        m.name for m in GPU_METRICS if m.interval is SamplingInterval.SLOW and m.name in first[0]
    ]
    assert "energy_j" in slow
    for metric in slow:
        together = [sum(metric in values for values in frame) for frame in others]
        assert all(metric in values for values in first)
        assert sum(together) == 8 * 3
        assert max(together) < 8
    usual = 8 * len(slow) * 3 / len(others)
    assert max(sum(m in v for v in frame for m in slow) for frame in others) < 2 * usual


def test_a_failure_whose_error_changes_is_one_failure(play):
    """Each difference between two frames is stored."""
    program = f"""
sampler, result = start(), []
for code in (0, 999, 998, 999, 3, 0):
    scene(MODELS="t4", FAULTS=f"nvmlDeviceGetFanSpeed={{code}}")
    result.append(poll(sampler).samples["{FIRST}"].unavailable.get("fan_pct"))
sampler.close()
"""
    good, first, second, third, unsupported, _ = play(program)
    assert (good, first["state"]) == (None, "stale")
    assert "an error of the fake" in first["reason"] or "Unknown" in first["reason"]
    assert first == second == third
    assert (unsupported["state"], unsupported["since_s"]) == ("not_supported", first["since_s"])


def test_a_clock_that_goes_back_makes_nothing_wait(play):
    program = f"""
scene(MODELS="h100", FAULTS="nvmlDeviceGetFanSpeed=0")
sampler = start()
poll(sampler)
result = [name in poll(sampler, -{HOUR_S}).samples["{FIRST}"].values for name in ("energy_j",)]
result += [poll(sampler).problem, sampler.close()]
"""
    assert play(program) == [True, None, None]


def test_a_clock_that_goes_back_changes_no_rhythm(play):
    """Slow metrics come once in their interval again, not when the clock has caught up."""
    program = f"""
scene(MODELS="h100")
sampler = start()
poll(sampler)
poll(sampler, -{HOUR_S})
frames = [poll(sampler) for _ in range(61)]
result = [sum("energy_j" in each.samples["{FIRST}"].values for each in frames), sampler.close()]
"""
    read, _ = play(program)
    assert 60 // SamplingInterval.SLOW.period_s <= read <= 61 // SamplingInterval.SLOW.period_s + 1


@pytest.mark.parametrize("jump_s", [56 * 365 * 24 * HOUR_S, -20 * 365 * 24 * HOUR_S])
def test_a_clock_that_is_set_delays_no_answer(play, jump_s):
    """A machine without a battery begins in 1970, until it asks others for the time."""
    program = f"""
scene(MODELS=",".join(["h100"] * 8))
sampler = start()
poll(sampler)
poll(sampler)
began_s = time.monotonic()
poll(sampler, {jump_s})
poll(sampler)
result = [time.monotonic() - began_s, sampler.close()]
"""
    took_s, _ = play(program)
    assert took_s < SILENCE_S


def test_a_counter_of_pcie_bytes_that_never_answers_delays_nothing_else(play):
    program = f"""
scene(MODELS="t4", HANG="nvmlDeviceGetPcieThroughput")
sampler = start()
poll(sampler)
time.sleep(0.05)
pcie_throughput.PATIENCE_S = 0.04
result = poll(sampler).samples["{FIRST}"]
"""
    sample = play(program)
    assert sample["unavailable"]["pcie_tx_bytes_per_s"]["state"] == "stale"
    assert sample["values"]["gpu_utilization_pct"] == 0
