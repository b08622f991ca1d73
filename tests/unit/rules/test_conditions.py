"""What each condition says of hand-made frames: when it begins, when it ends, when it is silent."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.clock_reasons import SLOWING
from gpuadvisor.domain.metrics import GPU_METRICS
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame, Gpu, Sample, State, Unavailable
from gpuadvisor.rules.alert_states import UNKNOWN_END_S
from gpuadvisor.rules.conditions import Conditions

GIB = 2**30
H100 = Gpu("GPU-3", 3, "NVIDIA H100 80GB HBM3", memory_total_bytes=80 * GIB)
OTHER = Gpu("GPU-4", 4, "NVIDIA H100 80GB HBM3")
START_S = 1_700_000_000.0
LIMITS = {
    "sm_clock_max_mhz": 1980,
    "power_limit_w": 700.0,
    "temperature_slowdown_c": 87,
    "pcie_generation_max": 5,
    "pcie_width_max": 16,
    "memory_total_bytes": 80 * GIB,
}
HEALTHY = {
    "throttle_reasons": 0,
    "sm_clock_mhz": 1980,
    "gpu_utilization_pct": 100,
    "sm_active_pct": 80.0,
    "memory_used_bytes": GIB,
    "temperature_c": 60,
    "pcie_generation": 5,
    "pcie_width": 16,
    "ecc_uncorrected_volatile": 0,
    "ecc_corrected_volatile": 0,
    "remap_pending": 0,
    "remap_failed": 0,
}


def frame(at_s, gpus=None, unavailable=None, **values):
    sample = Sample({**LIMITS, **HEALTHY, **values}, unavailable or {})
    return Frame(START_S + at_s, {H100.uuid: sample}, gpus=gpus)


def seconds(*spans):
    """A frame a second: each span is how many, and what differs from a healthy GPU in them."""
    at_s = 0
    for count, values in spans:
        for _ in range(count):
            yield frame(at_s, gpus=(H100,) if at_s == 0 else None, **values)
            at_s += 1


def observed(frames):
    conditions = Conditions()
    return [event for each in frames for event in conditions.observe(each)], conditions


def told(frames):
    """What was said, as (kind, key, began, ended) in seconds since the start."""
    return [
        (e.kind, e.key, e.began_s - START_S, None if e.ended_s is None else e.ended_s - START_S)
        for e in observed(frames)[0]
    ]


CAP = {"throttle_reasons": 0x4, "sm_clock_mhz": 1410}
FULL = {"memory_used_bytes": 77 * GIB}
HOT = {"temperature_c": 85}
CUT, CUT_BY_DRIVER, CUT_BY_BOTH = (
    {"throttle_reasons": mask, "sm_clock_mhz": 1410} for mask in (0x48, 0x20, 0x68)
)
LOW_LINK = {"pcie_generation": 1}
IDLE = {"gpu_utilization_pct": 0}
BROKEN = {"sm_active_pct": 0.0}
FINE: dict = {}

CASES = {
    "a healthy GPU": ([(120, FINE)], []),
    "power cap": (
        [(5, FINE), (15, CAP), (70, FINE)],
        [("throttling", "sw_power_cap", 5, None), ("throttling", "sw_power_cap", 5, 79)],
    ),
    "a power cap of some seconds": ([(5, FINE), (10, CAP), (20, FINE)], []),
    "a power cap of a waving load is one event": (
        [span for _ in range(20) for span in ((9, CAP), (6, FINE))],
        [("throttling", "sw_power_cap", 0, None)],
    ),
    "so it is where the waves are long": (
        [span for _ in range(10) for span in ((15, CAP), (45, FINE))],
        [("throttling", "sw_power_cap", 0, None)],
    ),
    "a power cap now and then": (
        [span for _ in range(20) for span in ((5, CAP), (15, FINE))],
        [],
    ),
    "a power limit that costs no speed": ([(300, {"throttle_reasons": 0x4})], []),
    "one that costs as much as runs differ": ([(300, {**CAP, "sm_clock_mhz": 1890})], []),
    "heat that costs no speed": ([(300, {"throttle_reasons": 0x20})], []),
    "hardware that costs no speed yet": (
        [(4, {"throttle_reasons": 0x40})],
        [("throttling", "hw_thermal_slowdown", 0, None)],
    ),
    "idle clocks and a set clock cost nothing": ([(20, {"throttle_reasons": 0x103})], []),
    "the more specific hardware reason": (
        [(4, {"throttle_reasons": 0x48})],
        [("throttling", "hw_thermal_slowdown", 0, None)],
    ),
    "a hardware slow-down without more": (
        [(4, {"throttle_reasons": 0x8})],
        [("throttling", "hw_slowdown", 0, None)],
    ),
    "memory begins above 95 % and ends below 90 %": (
        [(2, FULL), (3, {"memory_used_bytes": 73 * GIB}), (2, {"memory_used_bytes": 71 * GIB})],
        [("memory_full", "", 0, None), ("memory_full", "", 0, 5)],
    ),
    "memory at 94 %": ([(5, {"memory_used_bytes": 75 * GIB})], []),
    "temperature begins 3 C below and ends 8 C below": (
        [(7, HOT), (3, {"temperature_c": 80}), (2, {"temperature_c": 78})],
        [("temperature", "", 0, None), ("temperature", "", 0, 10)],
    ),
    "heat that cuts the clocks ends what was said of it before": (
        [(8, HOT), (4, {**HOT, **CUT}), (50, FINE)],
        [
            ("temperature", "", 0, None),
            ("throttling", "hw_thermal_slowdown", 8, None),
            ("temperature", "", 0, 10),
        ],
    ),
    "it is one event, whoever cuts them": (
        [(30, {**HOT, **CUT_BY_BOTH}), (20, {**HOT, **CUT_BY_DRIVER}), (70, FINE)],
        [
            ("throttling", "hw_thermal_slowdown", 0, None),
            ("throttling", "hw_thermal_slowdown", 0, 89),
        ],
    ),
    "the driver's cut becomes the hardware's": (
        [(20, CUT_BY_DRIVER), (10, CUT_BY_BOTH)],
        [
            ("throttling", "sw_thermal_slowdown", 0, None),
            ("throttling", "hw_thermal_slowdown", 20, None),
            ("throttling", "sw_thermal_slowdown", 0, 22),
        ],
    ),
    "what is left of it once the graver is over begins then": (
        [(4, CUT), (110, {**HOT, **CUT_BY_DRIVER})],
        [
            ("throttling", "hw_thermal_slowdown", 0, None),
            ("throttling", "hw_thermal_slowdown", 0, 63),
            ("throttling", "sw_thermal_slowdown", 63, None),
        ],
    ),
    "heat that is near the limit, and costs no speed": (
        [(20, {**HOT, "throttle_reasons": 0x20})],
        [("temperature", "", 0, None)],
    ),
    "a hot second": ([(3, FINE), (2, HOT), (9, FINE)], []),
    "a low link under load": (
        [(12, LOW_LINK), (8, FINE)],
        [("pcie_downgrade", "", 0, None), ("pcie_downgrade", "", 0, 16)],
    ),
    "a low link of an idle GPU": ([(60, {**LOW_LINK, **IDLE})], []),
    "a narrow link": ([(12, {"pcie_width": 8})], [("pcie_downgrade", "", 0, None)]),
    "an uncorrected error": (
        [(3, FINE), (3, {"ecc_uncorrected_volatile": 2})],
        [("ecc", "uncorrected", 3, 3)],
    ),
    "errors of before we looked": ([(3, {"ecc_uncorrected_volatile": 2})], []),
    "counters that start anew": (
        [(3, {"ecc_uncorrected_volatile": 5}), (3, {"ecc_uncorrected_volatile": 0})],
        [],
    ),
    "an error since they started anew": (
        [(3, {"ecc_uncorrected_volatile": 5}), (3, {"ecc_uncorrected_volatile": 1})],
        [("ecc", "uncorrected", 3, 3)],
    ),
    "a storm": (
        [(5, FINE), (700, {"ecc_corrected_volatile": 500})],
        [("ecc", "corrected", 5, None), ("ecc", "corrected", 5, 664)],
    ),
    "some corrected errors": ([(5, FINE), (5, {"ecc_corrected_volatile": 50})], []),
    "rows that wait": (
        [(2, FINE), (3, {"remap_pending": 1}), (2, FINE)],
        [("remap_pending", "", 2, None), ("remap_pending", "", 2, 5)],
    ),
    "rows that cannot be replaced": (
        [(2, {"remap_failed": 1})],
        [("remap_failed", "", 0, None)],
    ),
    "broken counters": (
        [(40, BROKEN), (5, {**BROKEN, **IDLE}), (2, FINE)],
        [("broken_collector", "", 0, None), ("broken_collector", "", 0, 45)],
    ),
    "an idle GPU is not broken": ([(90, {**BROKEN, **IDLE})], []),
    "broken for a moment": ([(20, BROKEN), (20, FINE)], []),
}


@pytest.mark.parametrize(("spans", "expected"), CASES.values(), ids=CASES)
def test_case(spans, expected):
    assert told(seconds(*spans)) == expected


def test_a_power_cap_is_said_with_its_figures():
    ((event,), _) = observed(seconds((14, CAP)))
    assert event.message == (
        "GPU 3 began to be held at 1410 of 1980 MHz by its power limit (700 W)."
    )
    assert event.severity is Severity.WARNING
    assert event.gpu == H100.uuid
    assert event.data["sm_clock_mhz"] == 1410


def test_fast_frames_find_a_power_cap_too():
    def frames():
        yield frame(0, gpus=(H100,))
        for tenth in range(1, 120):
            sample = Sample({"throttle_reasons": 0x4, "sm_clock_mhz": 1410})
            yield Frame(START_S + tenth / 10, {H100.uuid: sample}, full=tenth % 10 == 0)

    (event,) = observed(frames())[0]
    assert event.kind == "throttling"


@pytest.mark.parametrize("key", SLOWING)
def test_every_reason_makes_a_sentence(key):
    bit = SLOWING[key].bit
    ((event,), _) = observed(seconds((14, {"throttle_reasons": bit, "sm_clock_mhz": 1410})))
    assert event.key == key
    assert event.message.startswith("GPU 3 began to be held at 1410 of 1980 MHz ")
    assert event.message.endswith(".")


def test_what_was_lost_and_came_back():
    lost = {name: Unavailable(State.LOST, START_S + 2, "GPU is lost") for name in HEALTHY}
    frames = [
        frame(0, gpus=(H100,)),
        frame(1),
        Frame(START_S + 2, {H100.uuid: Sample({}, lost)}),
        Frame(START_S + 3, {H100.uuid: Sample({}, lost)}),
        frame(4),
    ]
    events, _ = observed(frames)
    assert [(e.kind, e.ended_s) for e in events] == [
        ("gpu_lost", None),
        ("gpu_lost", START_S + 4),
    ]
    assert events[0].severity is Severity.ERROR


def test_a_loss_is_not_over_where_the_driver_does_not_list_the_gpu_any_more():
    lost = {name: Unavailable(State.LOST, START_S + 2, "GPU is lost") for name in HEALTHY}
    frames = [
        frame(0, gpus=(H100,)),
        Frame(START_S + 1, {H100.uuid: Sample({}, lost)}),
        Frame(START_S + 2, gpus=(OTHER,)),
        *(Frame(START_S + at) for at in range(3, 90)),
        frame(90, gpus=(H100, OTHER)),
    ]
    losses = [each for each in told(frames) if each[0] == "gpu_lost"]
    assert losses == [("gpu_lost", "", 1, None), ("gpu_lost", "", 1, 90)]


def test_a_gpu_that_was_lost_before_it_was_seen_is_back_when_its_number_answers():
    unnamed = Gpu("GPU-lost-0", 0, "NVIDIA GPU")
    lost = {name: Unavailable(State.LOST, START_S, "GPU is lost") for name in HEALTHY}
    frames = [
        Frame(START_S, {unnamed.uuid: Sample({}, lost)}, gpus=(unnamed,)),
        frame(1, gpus=(H100,)),
    ]
    losses = [each for each in told(frames) if each[0] == "gpu_lost"]
    assert losses == [("gpu_lost", "", 0, None), ("gpu_lost", "", 0, 1)]


def test_gpus_that_come_and_go():
    frames = [frame(0, gpus=(H100,)), frame(1, gpus=(H100, OTHER)), frame(2, gpus=(H100,))]
    assert told(frames) == [("gpu_added", "", 1, 1), ("gpu_removed", "", 2, 2)]


def test_what_lasts_on_a_gpu_ends_when_it_is_removed():
    frames = [frame(0, gpus=(H100,), **FULL), Frame(START_S + 1, gpus=())]
    assert told(frames) == [
        ("memory_full", "", 0, None),
        ("gpu_removed", "", 1, 1),
        ("memory_full", "", 0, 1),
    ]


def test_a_gap_and_a_clock_that_was_set_back():
    frames = [frame(0, gpus=(H100,)), frame(4), frame(704), frame(705), frame(-2895)]
    assert told(frames) == [("gap", "", 4, 704), ("gap", "clock", -2895, -2895)]
    messages = [event.message for event in observed(frames)[0]]
    assert messages[0].startswith("Nothing was measured for 11 min 40 s: ")
    assert messages[1].startswith("The clock was set back by 1 h: ")


def test_a_clock_that_is_corrected_ends_nothing_but_what_is_over():
    frames = [frame(0, gpus=(H100,), **FULL), frame(-0.02, **FULL), frame(-14, **FULL)]
    assert told(frames) == [("memory_full", "", 0, None), ("gap", "clock", -14, -14)]
    assert told([*frames, frame(-13)])[2:] == [("memory_full", "", 0, 0)]


def test_an_event_does_not_last_over_a_clock_that_is_set_back():
    """From ten o'clock to nine it would have lasted for no time, whatever it did."""
    frames = [*(frame(at, gpus=(H100,), **FULL) for at in range(10)), frame(-3600, **FULL)]
    frames += [Frame(START_S - 3599, problem="silent"), frame(-3598)]
    lasted = [each for each in told(frames) if each[0] == "memory_full"]
    assert lasted == [
        ("memory_full", "", 0, None),
        ("memory_full", "", 0, 9),
        ("memory_full", "", -3600, None),
        ("memory_full", "", -3600, -3598),
    ]


def test_a_clock_that_is_set_forward_makes_nothing_last():
    frames = [frame(0, gpus=(H100,)), frame(1, **CAP), frame(3601, **CAP)]
    assert told([*frames, *(frame(3602 + at_s, **CAP) for at_s in range(9))])[1:] == []
    after = [frame(3602 + at_s, **CAP) for at_s in range(10)]
    assert told([*frames, *after])[1:] == [("throttling", "sw_power_cap", 3601, None)]


@pytest.mark.parametrize("gap_s", [3600, 9000 * 86400])
def test_what_nobody_looked_at_does_not_last(gap_s):
    """As of a machine that slept, or whose clock was far behind when it had just started."""
    before = [frame(at_s, (H100,) if at_s == 0 else None, **FULL) for at_s in range(5)]
    began, over = ("memory_full", "", 0, None), ("memory_full", "", 0, 4)
    gap = ("gap", "", 4, 4 + gap_s)
    still = [frame(4 + gap_s + at_s, **FULL) for at_s in range(3)]
    anew = ("memory_full", "", 4 + gap_s, None)
    assert sorted(told([*before, *still]), key=repr) == sorted([began, over, gap, anew], key=repr)
    gone = frame(4 + gap_s, memory_used_bytes=GIB)
    assert sorted(told([*before, gone]), key=repr) == sorted([began, over, gap], key=repr)


def test_a_driver_that_goes_and_comes():
    frames = [
        frame(0, gpus=(H100,)),
        Frame(START_S + 1, problem="The driver was replaced."),
        Frame(START_S + 2, problem="The driver was replaced."),
        Frame(START_S + 3, problem="No GPU answers."),
        Frame(START_S + 2.9, problem="No GPU answers."),
        frame(4),
    ]
    assert told(frames) == [
        ("driver", "", 1, None),
        ("driver", "", 1, None),  # with what it has turned into
        ("driver", "", 1, 4),
    ]
    messages = [event.message for event in observed(frames)[0]]
    assert messages == ["The driver was replaced.", "No GPU answers.", "No GPU answers."]


def test_while_nothing_can_be_read_nothing_begins_and_nothing_is_over():
    def silent(since_s, until_s):
        stale = {name: Unavailable(State.STALE, START_S + since_s) for name in HEALTHY}
        sample = Sample({}, stale)
        for at_s in range(since_s, until_s):
            yield Frame(START_S + at_s, {H100.uuid: sample}, problem="It does not answer.")

    def hung_for(seconds):
        before = [frame(at_s, (H100,) if at_s == 0 else None, **FULL, **CAP) for at_s in range(5)]
        after = [frame(5 + seconds + at_s, **FULL, **CAP) for at_s in range(3)]
        return [*before, *silent(5, 5 + seconds), *after]

    assert told(hung_for(3600)) == [
        ("memory_full", "", 0, None),
        ("driver", "", 5, None),
        ("driver", "", 5, 3605),
    ]
    over = frame(3608, memory_used_bytes=GIB)
    assert told([*hung_for(3600), over])[-1] == ("memory_full", "", 0, 3608)


def test_what_cannot_be_seen_for_a_minute_ends_when_it_was_seen_last():
    unread = {name: Unavailable(State.STALE, START_S) for name in HEALTHY}
    frames = [frame(0, gpus=(H100,), **FULL), frame(1, **FULL)]
    frames += [Frame(START_S + at_s, {H100.uuid: Sample({}, unread)}) for at_s in range(2, 70)]
    assert told(frames) == [("memory_full", "", 0, None), ("memory_full", "", 0, 1)]
    assert UNKNOWN_END_S < 68


def test_the_collectors_own_events_pass_through():
    xid = Event("xid", START_S, "Xid 31 on GPU 3.", Severity.ERROR, H100.uuid, START_S)
    one = Frame(START_S, {H100.uuid: Sample(HEALTHY)}, gpus=(H100,), events=(xid,))
    assert observed([one])[0] == [xid]


def test_closing_ends_what_lasts():
    events, conditions = observed(seconds((14, {**CAP, **FULL})))
    assert len(events) == 2
    assert conditions.open == sorted(events, key=lambda event: event.began_s)
    ended = conditions.close(START_S + 19)
    assert {e.identity: e.ended_s for e in ended} == {e.identity: START_S + 19 for e in events}
    assert conditions.open == []


NAMES = [metric.name for metric in GPU_METRICS]
NUMBERS = st.one_of(st.integers(0, 2**40), st.floats(0, 1e12, allow_nan=False), st.just(100))
TROUBLES = st.builds(
    Unavailable, st.sampled_from([s for s in State if s is not State.OK]), st.just(0.0)
)
SAMPLES = st.builds(
    Sample,
    st.dictionaries(st.sampled_from(list(HEALTHY) + list(LIMITS)), NUMBERS, max_size=6),
    st.dictionaries(st.sampled_from(NAMES), TROUBLES, max_size=2),
)
FRAMES = st.lists(
    st.builds(
        Frame,
        st.integers(-5, 200).map(float),
        st.dictionaries(st.sampled_from([H100.uuid, OTHER.uuid]), SAMPLES, max_size=2),
        st.booleans(),
        st.sampled_from([None, None, (H100,), (H100, OTHER), ()]),
        problem=st.sampled_from([None, None, None, "a", "b"]),
    ),
    max_size=20,
)


@settings(max_examples=50)
@given(FRAMES)
def test_no_frames_confuse_it(frames):
    conditions = Conditions()
    conditions.observe(frame(0, gpus=(H100, OTHER), **FULL))
    failing = len(conditions._conditions)
    lasting = {e.identity for e in conditions.open}
    for each in frames:
        for event in conditions.observe(each):
            if event.ended_s is None:
                assert event.identity not in lasting or event.kind == "driver"  # another message
                lasting.add(event.identity)
            else:
                assert event.ended_s >= event.began_s
                lasting.discard(event.identity)
    assert len(conditions._conditions) == failing
    assert {e.identity for e in conditions.open} == lasting
