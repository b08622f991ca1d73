"""The figures of a block, from frames made by hand."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuadvisor
from gpuadvisor.domain.telemetry import Gpu, Sample, State, Unavailable
from gpuadvisor.errors import UsageError
from gpuadvisor.monitoring.block import choose
from gpuadvisor.monitoring.figures import BlockAccumulator
from tests.telemetry import GIB, START_S, all_in, frame, h100, sample


def block(frames, began_s, ended_s):
    """The figures of all GPUs between two times, from frames in order of time."""
    found = BlockAccumulator()
    found.begin(START_S + began_s)
    found.end(START_S + ended_s)
    for each in frames:
        found.add(each)
        if each.time_s >= START_S + ended_s:
            break
    return found.figures()


def gpu(frames, began_s, ended_s):
    """What became of the only GPU."""
    (found,) = block(frames, began_s, ended_s).gpus
    return found


def at_10_hz(until_s, counter_j=None, skip=lambda t: False, **values):
    """Frames every 0.1 s; the energy counter, a function of time, is read every 10 s."""
    for step in range(round(10 * until_s) + 1):
        t = step / 10
        if not skip(t):
            counted = {"energy_j": counter_j(t)} if counter_j and step % 100 == 0 else {}
            whole = frame(t, sample(**values, **counted))
            yield whole if step % 10 == 0 else replace(whole, full=False)


times = st.lists(st.floats(0.01, 2.9), min_size=1, max_size=30)
watts = st.floats(1, 1000)


@given(gaps=times, power_w=watts, before_s=st.floats(0, 2), after_s=st.floats(0, 2))
def test_constant_power_is_that_power_times_the_time(gaps, power_w, before_s, after_s):
    at_s, frames = before_s, []
    for gap_s in gaps:
        frames.append(frame(at_s, sample(power_w=power_w)))
        at_s += gap_s
    ended_s = frames[-1].time_s - START_S + after_s
    if ended_s > 0.001:
        found = gpu(frames, 0, ended_s)
        assert found.energy_j == pytest.approx(power_w * ended_s, rel=1e-4)
        assert found.energy_source == "power"
        assert found.seconds == pytest.approx(ended_s, abs=1e-5)


@given(readings=st.lists(st.tuples(st.floats(0.01, 5), watts), min_size=1, max_size=30))
def test_a_mean_is_between_the_lowest_and_the_highest_reading(readings):
    at_s, frames = 0.0, []
    for gap_s, power_w in readings:
        at_s += gap_s
        frames.append(frame(at_s, sample(power_w=power_w)))
    found = gpu(frames, 0, at_s)
    assert found.power_max_w == max(power_w for _, power_w in readings)
    if found.power_mean_w is not None:
        lowest = min(power_w for _, power_w in readings)
        assert lowest - 1e-6 <= found.power_mean_w <= found.power_max_w + 1e-6
    else:
        assert "power_mean_w" in found.unknown


@given(powers=st.lists(watts, min_size=3, max_size=30), data=st.data())
def test_the_energies_of_two_parts_are_that_of_the_whole(powers, data):
    frames = [frame(t, sample(power_w=power_w)) for t, power_w in enumerate(powers)]
    last = len(powers) - 1
    middle = data.draw(st.integers(1, last - 1))
    parts = gpu(frames, 0, middle).energy_j + gpu(frames, middle, last).energy_j
    assert gpu(frames, 0, last).energy_j == pytest.approx(parts)


def test_a_rising_power_is_integrated_by_trapezoids():
    frames = [frame(t, sample(power_w=100.0 * t)) for t in range(5)]
    found = gpu(frames, 0, 4)
    assert found.energy_j == pytest.approx(800)
    assert found.power_mean_w == pytest.approx(200)


def test_the_counter_counts_where_it_is_read_near_both_ends():
    frames = at_10_hz(24, counter_j=lambda t: 1e6 + 500 * t, power_w=700.0)
    found = gpu(frames, 0, 24)
    assert found.energy_source == "counter"
    assert found.energy_j == pytest.approx(20 * 500 + 4 * 700)


def test_what_was_used_before_the_block_is_taken_off_the_counter():
    frames = at_10_hz(31, counter_j=lambda t: 1e6 + 500 * t, power_w=700.0)
    found = gpu(frames, 1, 31)
    assert found.energy_source == "counter"
    assert found.energy_j == pytest.approx(30 * 500 - 1 * 700 + 1 * 700)


@pytest.mark.parametrize("ended_s", [8, 19])
def test_the_power_is_integrated_where_the_counter_spans_too_little(ended_s):
    frames = at_10_hz(ended_s, counter_j=lambda t: 1e6 + 500 * t, power_w=700.0)
    found = gpu(frames, 0, ended_s)
    assert found.energy_source == "power"
    assert found.energy_j == pytest.approx(ended_s * 700)


def test_the_counter_begins_with_its_reading_next_to_the_beginning():
    frames = at_10_hz(30, counter_j=lambda t: 500 * t, power_w=700.0)
    found = gpu(frames, 9, 30)
    assert (found.energy_source, found.energy_j) == ("counter", pytest.approx(20 * 500 + 700))


def test_the_counter_is_not_asked_about_less_than_two_seconds():
    frames = [frame(t, sample(power_w=700.0, energy_j=500.0 * t)) for t in (0, 0.75, 1.5)]
    found = gpu(frames, 0, 1.5)
    assert (found.energy_source, found.energy_j) == ("power", pytest.approx(1.5 * 700))


def test_a_counter_that_went_back_does_not_count():
    counted = {0: 5000.0, 10: 10_000.0, 20: 20.0}
    frames = at_10_hz(21, counter_j=lambda t: counted[round(t)], power_w=700.0)
    found = gpu(frames, 0, 21)
    assert (found.energy_source, found.energy_j) == ("power", pytest.approx(21 * 700))


def test_the_counter_knows_what_was_used_while_nothing_could_be_read():
    frames = at_10_hz(21, lambda t: 500 * t, skip=lambda t: 11 < t < 19, power_w=700.0)
    found = gpu(frames, 0, 21)
    assert (found.energy_source, found.energy_j) == ("counter", pytest.approx(20 * 500 + 700))
    assert found.seconds == pytest.approx(13)


def test_a_short_silence_behind_the_counters_last_reading_uses_as_much_as_it_counted():
    frames = at_10_hz(37, lambda t: 500 * t, skip=lambda t: t > 33.5, power_w=700.0)
    found = gpu(frames, 0, 37)
    assert found.energy_source == "counter"
    assert found.energy_j == pytest.approx(30 * 500 + 3.5 * 700 + 3.5 * 500)


def test_a_long_silence_behind_the_counters_last_reading_leaves_the_energy_unknown():
    frames = at_10_hz(37, lambda t: 500 * t, skip=lambda t: t > 32, power_w=700.0)
    found = gpu(frames, 0, 37)
    assert (found.energy_source, found.energy_j) == (None, None)
    assert found.power_mean_w == pytest.approx(700)
    assert found.unknown["energy_j"] == "it was read for 32.0 of 37.0 s only"


def test_readings_around_a_long_block_say_nothing_of_it():
    found = gpu([frame(-0.1, sample()), frame(10.1, sample())], 0, 10)
    assert (found.power_max_w, found.power_mean_w, found.throttle_reasons) == (None, None, None)
    assert found.memory_before_bytes == 71 * GIB


def test_a_silent_driver_leaves_sums_and_means_unknown_and_says_why():
    frames = at_10_hz(10, skip=lambda t: t > 3, power_w=700.0)
    found = gpu(frames, 0, 10)
    assert (found.energy_j, found.energy_source, found.power_mean_w) == (None, None, None)
    assert found.unknown["energy_j"] == "it was read for 3.0 of 10.0 s only"
    assert found.power_max_w == 700
    assert found.seconds == pytest.approx(3)


def test_what_the_driver_last_said_is_why():
    frames = [frame(0, sample()), frame(5, all_in(State.LOST, START_S + 2, "it fell off the bus"))]
    assert gpu(frames, 0, 6).unknown["power_mean_w"] == "lost: it fell off the bus"


def test_what_is_not_supported_is_unknown_and_not_zero():
    absence = Unavailable(State.NOT_SUPPORTED, START_S, "GPM needs Hopper")
    names = ("sm_active_pct", "tensor_active_pct", "power_w", "throttle_reasons", "temperature_c")
    frames = [frame(t, sample(dict.fromkeys(names, absence))) for t in range(-1, 5)]
    found = gpu(frames, 0, 4)
    figures = (
        "sm_active_mean_pct",
        "tensor_active_mean_pct",
        "power_mean_w",
        "power_max_w",
        "energy_j",
        "throttle_reasons",
        "temperature_max_c",
    )
    assert {name: getattr(found, name) for name in figures} == dict.fromkeys(figures)
    assert found.unknown == dict.fromkeys(figures, "not supported: GPM needs Hopper")
    assert found.gpu_utilization_mean_pct == pytest.approx(97)


def test_averages_count_for_what_they_have_in_common_with_the_block():
    frames = [frame(t, sample(sm_active_pct=pct)) for t, pct in ((-0.5, 1), (0.5, 20), (1.5, 80))]
    assert gpu(frames, 0, 2).sm_active_mean_pct == pytest.approx((0.5 * 20 + 80) / 1.5)
    frames.append(frame(2.5, sample(sm_active_pct=40)))
    assert gpu(frames, 0, 2).sm_active_mean_pct == pytest.approx((0.5 * 20 + 80 + 0.5 * 40) / 2)


def test_a_short_block_has_the_levels_around_it_but_no_averages():
    around = [(0, 100.0, 10 * GIB), (0.1, 300.0, 30 * GIB)]
    frames = [
        replace(
            frame(t, sample(power_w=w, memory_used_bytes=used, sm_active_pct=None)), full=t == 0
        )
        for t, w, used in around
    ]
    found = gpu(frames, 0.04, 0.06)
    assert found.samples == 0
    assert found.power_mean_w == pytest.approx(200)
    assert found.energy_j == pytest.approx(200 * 0.02, rel=1e-4)
    assert (found.memory_before_bytes, found.memory_after_bytes) == (10 * GIB, 30 * GIB)
    assert found.memory_peak_bytes == 30 * GIB
    assert found.unknown["sm_active_mean_pct"] == "no reading came in the block"


def test_memory_has_its_peak_and_both_edges():
    used = [(-0.1, 10), (0.1, 20), (0.2, 50), (0.3, 30), (0.5, 5)]
    frames = [frame(t, sample(memory_used_bytes=gib * GIB)) for t, gib in used]
    found = gpu(frames, 0, 0.4)
    peak, edges = found.memory_peak_bytes, (found.memory_before_bytes, found.memory_after_bytes)
    assert (peak, edges) == (50 * GIB, (10 * GIB, 5 * GIB))


def test_memory_before_a_block_that_began_without_the_driver_is_unknown():
    found = gpu([frame(t, sample()) for t in range(5)], -0.1, 4)
    assert found.memory_before_bytes is None
    assert found.unknown == {"memory_before_bytes": "no reading came near that end of the block"}


def test_the_first_reason_for_a_silence_is_told():
    first, then = (all_in(State.STALE, START_S, why) for why in ("it does not answer", "starting"))
    frames = [
        frame(0, sample()),
        frame(5, first, problem="It does not answer."),
        frame(6, then, problem="It starts."),
    ]
    found = block(frames, 0, 9)
    assert found.problem == "It does not answer."
    assert found.gpus[0].unknown["energy_j"] == "stale: it does not answer"


def test_what_comes_after_the_first_reading_behind_the_end_does_not_count():
    frames = [frame(t, sample(power_w=w)) for t, w in ((0, 100), (1, 100), (3, 100), (4, 900))]
    assert gpu(frames, 0, 2).power_max_w == 100


@pytest.mark.parametrize(
    ("masks", "words"),
    [
        ([0, 0x1, 0x2], ()),
        ([0, 0x4, 0], ("its power limit",)),
        ([0x4, 0x20], ("its power limit", "its temperature")),
        ([0x48], ("its hardware, which is too hot: check the cooling",)),
    ],
)
def test_the_reasons_seen_are_told_in_words(masks, words):
    frames = [frame(t, sample(throttle_reasons=mask)) for t, mask in enumerate(masks)]
    assert gpu(frames, 0, 3).throttle_reasons == words


def test_without_a_gpu_there_is_the_problem():
    found = block([frame(0, problem="No driver is installed.")], 0, 1)
    assert (found.gpus, found.problem) == ((), "No driver is installed.")
    assert block([], 0, 1).problem == "The NVIDIA driver has not answered."


def test_a_gpu_without_any_sample_is_there_with_nothing_known():
    found = gpu([frame(0, gpus=(h100(0),))], 0, 1)
    assert (found.samples, found.seconds, found.power_max_w) == (0, 0, None)
    assert set(found.unknown.values()) == {"no reading came in the block"}


def test_a_gpu_that_was_removed_in_the_block_keeps_its_figures():
    made = BlockAccumulator()
    made.add(frame(-0.5, sample(power_w=300.0)))
    made.begin(START_S)
    made.add(frame(1, sample(power_w=300.0)))
    made.add(frame(2, gpus=(h100(1),)))
    made.end(START_S + 3)
    (found,) = made.figures([h100(0)]).gpus
    assert (found.uuid, found.power_max_w) == ("GPU-0", 300)


def test_all_of_it_survives_json():
    found = block(at_10_hz(3), 0, 3)
    assert json.loads(json.dumps(found.as_dict()))["gpus"][0]["power_max_w"] == 652.3


def test_the_table_shows_what_is_known_and_what_is_not():
    frames = [frame(t, sample(power_w=700.0), sample(power_w=None)) for t in range(11)]
    title, header, first, second, note = str(block(frames, 0, 10)).splitlines()
    assert title == "2 GPUs for 10.00 s"
    assert first[header.index("energy J") :].startswith("7,000 (power)")
    assert first[header.index("memory GiB") :].startswith("71.00")
    assert second[header.index("power W") :].startswith("- ")
    assert "unknown" in note


MIG = Gpu("MIG-7", 1, "NVIDIA H100 MIG 1g.10gb", parent_uuid="GPU-1")
KNOWN = (h100(0), h100(1), MIG, h100(2))


@pytest.mark.parametrize(
    ("wanted", "visible", "uuids"),
    [
        (None, None, ["GPU-0", "GPU-1", "MIG-7", "GPU-2"]),
        (None, "2,0", ["GPU-2", "GPU-0"]),
        (None, "MIG-7", ["MIG-7"]),
        (None, "", []),
        ([0], "2,0", ["GPU-2"]),
        ([2], None, ["GPU-2"]),
        (["GPU-1"], "2", ["GPU-1"]),
        ([], None, []),
        (1, None, ["GPU-1"]),
        ("MIG-7", None, ["MIG-7"]),
    ],
)
def test_the_gpus_are_those_that_torch_would_see_or_that_are_named(wanted, visible, uuids):
    assert [gpu.uuid for gpu in choose(KNOWN, wanted, visible)] == uuids


@pytest.mark.parametrize(
    ("wanted", "visible", "message"),
    [
        ([1], "2", "there is no GPU 1: this process can use 1"),
        ([-1], None, "there is no GPU -1: this process can use 3"),
        (["GPU-9"], None, "'GPU-9' names 0 GPUs"),
        (["GPU-"], None, "'GPU-' names 3 GPUs"),
    ],
)
def test_a_gpu_that_is_not_there_is_refused(wanted, visible, message):
    with pytest.raises(UsageError, match=message):
        choose(KNOWN, wanted, visible)


def test_figures_wait_for_the_end_of_the_block():
    measured = gpuadvisor.monitor()
    with pytest.raises(UsageError, match="has not ended: read its figures after it"):
        _ = measured.gpus
    assert str(measured) == "a block that has not ended"


def test_values_that_are_no_figures_of_a_block_are_let_be():
    assert gpu([frame(0, Sample({"fan_pct": 30, "power_w": 5.0}))], 0, 1).power_max_w == 5
