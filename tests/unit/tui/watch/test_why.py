"""What is said of a slow GPU: only what was read, and no more of it than can be."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import (
    PROCESSES,
    Event,
    Frame,
    Gpu,
    GpuProcess,
    Sample,
    State,
    Unavailable,
)
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.why import WORKS, why
from tests.telemetry import BUSY, GIB, START_S, all_in, frame, h100, sample


def of(pid=71, gpu="GPU-0", memory_bytes=70 * GIB, **fields):
    return GpuProcess(gpu, pid, "compute", memory_bytes, "python", **fields)


IDLE = sample(gpu_utilization_pct=0)
WELL = sample(sm_clock_mhz=1980)


def watched(*samples, processes=None, at_s=0):
    """A state after a frame a second."""
    state = WatchState("live", clock=lambda: 0.0)
    for second, each in enumerate(samples):
        made = frame(at_s + second, each)
        state.update(Frame(made.time_s, made.samples, gpus=made.gpus, processes=processes))
    return state


def said(state):
    return why(state, state.gpus[0])


def sentence(*samples, **options):
    return said(watched(*samples, **options)).sentence


CAPPED = {"throttle_reasons": 0x4, "sm_clock_mhz": 1485}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            CAPPED,
            "power cap: clocks 25 % below maximum (1485 of 1980 MHz in the last 20 s), which costs"
            " up to 25 % of its speed",
        ),
        (
            {**CAPPED, "dram_active_pct": 80},
            "power cap: clocks 25 % below maximum (1485 of 1980 MHz in the last 20 s), which costs"
            " little, as it waits for its memory",
        ),
        (
            {**CAPPED, "sm_clock_mhz": 1975},
            "power cap, at full clock",
        ),  # a limit that costs nothing
        (
            {"sm_clock_mhz": 1485},  # low clocks that nothing is known to hold
            "works at 1485 of 1980 MHz, held by neither power nor heat, which may cost up to 25 %"
            " of its time at work. Look for a locked clock (`nvidia-smi -q -d CLOCK`) and unlock it"
            " with `sudo nvidia-smi -rgc`, unless it is locked for steady timings.",
        ),
        (
            {**CAPPED, "sm_clock_max_mhz": None},
            "power cap: its clocks were held down 100 % of the readings in the last 20 s",
        ),
        (
            {"sm_active_pct": 21},
            "kernels run all the time, but only 21 % of the SMs have work: up to 79 % of the GPU"
            " is unused",
        ),
        ({"sm_clock_mhz": 1980}, "ok"),
        ({"throttle_reasons": None}, "answers"),  # whether it is held down is not known
    ],
)
def test_what_is_said_of_a_gpu_at_work(changes, expected):
    assert sentence(*[sample(**changes)] * 30) == expected


MIG = (
    Gpu("GPU-0", 0, "NVIDIA H100 80GB HBM3", memory_total_bytes=80 * GIB),
    Gpu("MIG-1", 0, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10 * GIB, parent_uuid="GPU-0"),
)


@pytest.mark.parametrize(
    ("used_gib", "processes", "expected"),
    [
        (7, [of(gpu="MIG-1")], "in use; the driver tells no utilization, clocks or power of an"),
        (7, [], "in use; the driver"),  # of another container
        (0, [], "free"),
        (0, None, "answers"),  # whether a process is there is not known
    ],
)
def test_of_an_instance_no_more_is_said_than_the_driver_tells(used_gib, processes, expected):
    lacks = all_in(State.NOT_SUPPORTED, START_S).unavailable
    memory = {"memory_used_bytes": used_gib * GIB, "memory_total_bytes": 10 * GIB}
    told = {name: why for name, why in lacks.items() if name not in memory}
    state = WatchState("live", clock=lambda: 0.0)
    whole = sample({"gpu_utilization_pct": lacks["gpu_utilization_pct"]})
    samples = {"GPU-0": whole, "MIG-1": Sample(memory, told)}
    listed = None if processes is None else tuple(processes)
    state.update(Frame(START_S, samples, gpus=MIG, processes=listed))
    assert why(state, MIG[1]).sentence.startswith(expected)
    assert why(state, MIG[0]).texts[-1] == "in MIG mode"


def test_a_limit_that_holds_now_and_then_costs_so_much_less():
    readings = [sample(**(CAPPED if n % 4 == 0 else {"sm_clock_mhz": 1980})) for n in range(40)]
    assert sentence(*readings) == (
        "power cap in 25 % of its last 30 s at work: then clocks 25 % below maximum (1485 of 1980"
        " MHz), which costs up to 6 % of its speed"
    )


def test_low_clocks_while_nothing_holds_them_are_not_the_limits_fault():
    light = [sample(sm_clock_mhz=345)] * 20
    assert "25 % below maximum (1485" in sentence(*light, *[sample(**CAPPED)] * 20)


def test_two_readings_are_of_now_and_no_share_of_a_minute():
    assert "MHz now)" in sentence(*[sample(**CAPPED)] * 2)


def test_what_held_an_idle_gpu_costs_nothing():
    idle = sample(gpu_utilization_pct=0, **CAPPED)
    assert "power cap" not in sentence(*[idle] * 30)


def test_half_of_the_time_without_kernels_is_half_of_the_time():
    halves = [sample(gpu_utilization_pct=54 * (n % 2) + 28) for n in range(41)]
    text = sentence(*halves, processes=(of(),))
    assert re.fullmatch(
        r"no kernel ran 45 % of the time since \d\d:\d\d: it waits for data or its host, which"
        r" costs up to that much",
        text,
    )


def test_what_the_process_does_meanwhile_is_said_where_it_was_read():
    halves = [sample(gpu_utilization_pct=50)] * 40
    text = sentence(*halves, processes=(of(cpu_pct=104.0),))
    assert "where its process keeps 1.0 CPU cores busy" in text
    assert "cores" not in sentence(*halves, processes=(of(cpu_pct=None),))


def test_kernels_that_utilization_does_not_see_are_kernels():
    """As read on an H200 whose network waits 97 % of the time for the workers of its loader."""
    waits = [sample(gpu_utilization_pct=0.61)] * 100
    loader = of(cpu_pct=4.0, children_cpu_pct=183.0, started_s=START_S)
    assert re.fullmatch(
        r"hardly any kernel ran since \d\d:\d\d: it waits for data or its host, where its process"
        r" and those that this started keep 1.9 CPU cores busy, which costs up to nearly all of its"
        r" speed",
        sentence(*waits, processes=(loader,)),
    )
    took_memory = [sample(gpu_utilization_pct=0, sm_active_pct=0.3), *[IDLE] * 40]
    rests = of(cpu_pct=0.0, started_s=START_S)
    assert sentence(*took_memory, processes=(rests,)) == "no kernel ran for 40 s"


WORKS_HARD = [sample(sm_clock_mhz=1980)]
SPINS = (of(cpu_pct=100.0, children_cpu_pct=0.0, started_s=START_S),)


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        # Its first kernel, then none for seconds, then it works: that was its start.
        ([sample(gpu_utilization_pct=2), *[IDLE] * 6, *WORKS_HARD * 25], "ok"),
        # Trained for a minute, evaluated for half of one on the CPU, and trains again.
        ([*WORKS_HARD * 60, *[IDLE] * 30, *WORKS_HARD * 5], "ok"),
        # And while it evaluates.
        (
            [*WORKS_HARD * 60, *[IDLE] * 17],
            "no kernel ran for 10 s, where its process keeps 1.0 CPU cores busy",
        ),
        # It was at a limit that cost nothing, and is not at it now.
        (
            [*[sample(**{**CAPPED, "sm_clock_mhz": 1975})] * 30, *[IDLE] * 12],
            "no kernel ran for 10 s, where its process keeps 1.0 CPU cores busy",
        ),
        # It has not run anything yet, and its process works.
        ([IDLE] * 25, "no kernel ran for 20 s, where its process keeps 1.0 CPU cores busy"),
    ],
)
def test_a_pause_is_told_as_that_and_not_mixed_with_the_work(readings, expected):
    assert sentence(*readings, processes=SPINS) == expected


def test_half_of_its_time_at_work_is_no_share_of_the_pauses_between():
    half = [sample(gpu_utilization_pct=50)] * 30
    text = sentence(*half, *[IDLE] * 20, *half, processes=SPINS)
    assert text.startswith("no kernel ran 50 % of its time at work since ")


def test_what_pauses_again_and_again_waits():
    """A batch takes five seconds to make, and one to compute."""
    rhythm = [*[IDLE] * 5, sample(gpu_utilization_pct=90)] * 10
    text = sentence(*rhythm, processes=SPINS)
    assert re.match(r"no kernel ran 8\d % of the time since ", text)
    assert "where its process keeps 1.0 CPU cores busy" in text


def test_of_a_few_readings_it_is_said_that_they_are_few():
    assert sentence(*[sample(gpu_utilization_pct=50)] * 10, processes=SPINS) == (
        "no kernel ran 50 % of the last 5 s, where its process keeps 1.0 CPU cores busy, too short"
        " to tell whether it waits"
    )
    assert sentence(*[sample(sm_active_pct=12)] * 5, processes=SPINS) == (
        "kernels run, and 12 % of the SMs have work now, too short to tell more"
    )
    unknown = (of(started_s=START_S),)
    assert sentence(*[IDLE] * 2, processes=unknown) == (
        "no kernel ran for 1 s, too short to tell whether it is idle or waits"
    )
    state = watched(*[IDLE] * 2, processes=unknown)
    assert said(state).texts[-1] == "cannot tell yet"
    assert said(state).rank == WORKS


def test_a_gpu_is_free_once_its_last_process_has_gone():
    state = watched(*[sample(**CAPPED)] * 30, processes=SPINS)
    assert said(state).rank < WORKS
    for second in range(30, 35):
        made = frame(second, sample(gpu_utilization_pct=0, memory_used_bytes=0))
        state.update(replace(made, processes=()))
    assert said(state).sentence == "free"


def test_what_another_process_did_before_is_not_this_ones():
    before = [sample(gpu_utilization_pct=11)] * 60
    holder = of(started_s=START_S + 60, cpu_pct=1.0)
    assert sentence(*before, *[IDLE] * 45, processes=(holder,)) == "idle"
    assert sentence(*before, *[IDLE] * 75, processes=(holder,)).startswith("idle for at least 1")
    at_work = [sample(gpu_utilization_pct=100, sm_clock_mhz=1980)] * 30
    assert sentence(*before, *at_work, processes=(holder,)) == "ok"


def test_where_no_process_is_nobody_waits():
    assert "no kernel" not in sentence(*[sample(gpu_utilization_pct=50)] * 40, processes=())


def test_the_time_before_its_first_kernel_does_not_count():
    before = [IDLE] * 200
    assert sentence(*before, *[WELL] * 30, processes=(of(),)) == "ok"


def test_a_few_seconds_are_no_share():
    assert sentence(*[sample(gpu_utilization_pct=50)] * 10) == "ok"


def test_memory_that_is_held_by_who_does_nothing():
    idle = [IDLE] * 100
    assert sentence(*idle, processes=(of(), of(72, memory_bytes=GIB))) == (
        "idle for at least 2 min while python (71) and 1 more hold 71 GiB"
    )
    after_work = [sample()] * 5 + [IDLE] * 100
    assert sentence(*after_work, processes=(of(),)).startswith("idle for 2 min while python (71)")


def test_a_time_that_nobody_measured_is_no_idle_time():
    """The driver hung for three minutes between its last kernel and the idle minute."""
    state = watched(*[sample()] * 5, processes=(of(),))
    for second in range(185, 185 + 70):
        state.update(replace(frame(second, IDLE), processes=(of(),)))
    assert said(state).sentence.startswith("idle for at least 1 min while python (71) holds")


def test_an_empty_gpu_is_free_only_where_that_is_known():
    idle = [sample(gpu_utilization_pct=0, memory_used_bytes=GIB)] * 3
    assert sentence(*idle, processes=()) == "free"
    assert sentence(*idle) == "idle"  # whether there are processes is not known
    held = [IDLE] * 3
    assert sentence(*held, processes=()) == "idle"  # somebody holds its memory


def test_a_gpu_whose_processes_are_not_listed_is_not_free():
    idle = sample(gpu_utilization_pct=0, memory_used_bytes=GIB)
    untold = Sample(idle.values, {PROCESSES: Unavailable(State.STALE, START_S)})
    assert sentence(*[untold] * 3, processes=()) == "idle"
    assert sentence(*[untold] * 3, *[idle] * 3, processes=()) == "free"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (State.LOST, "lost: the GPU fell off the bus or was removed, and nothing of it can be"),
        (State.STALE, "stale 3 s: no answer"),
        (State.NO_PERMISSION, "no permission: the driver does not let this user read it"),
    ],
)
def test_a_gpu_that_cannot_be_read_says_that_and_nothing_else(state, expected):
    watched_state = watched(*[sample(**CAPPED)] * 30, all_in(state, START_S + 26, "no answer"))
    if state is State.STALE:
        expected = "stale 4 s: no answer"
    assert said(watched_state).sentence.startswith(expected)


def test_an_error_that_lasts_comes_before_what_is_slow():
    state = watched(*[sample(**CAPPED)] * 30)
    message = "GPU 0 reported Xid 79: reboot."
    state.log.add([Event("xid", START_S, message, Severity.ERROR, "GPU-0")])
    assert said(state).sentence == message
    state.log.add([Event("xid", START_S, message, Severity.ERROR, "GPU-0", ended_s=START_S + 1)])
    assert said(state).sentence.startswith("power cap")


def test_beside_a_warning_that_lasts_nothing_is_ok():
    low = "GPU 0 works over PCIe 1 x16 where 5 x16 is possible. Reseat it."
    warning = Event("pcie_downgrade", START_S, low, Severity.WARNING, "GPU-0")
    state = watched(*[WELL] * 30)
    assert said(state).sentence == "ok"
    state.log.add([replace(warning, gpu="GPU-1"), replace(warning, severity=Severity.INFO)])
    state.log.add([replace(warning, key="over", ended_s=START_S + 1)])
    assert said(state).sentence == "ok"
    state.log.add([warning])
    assert said(state).texts == (
        "works over PCIe 1 x16 where 5 x16 is possible. Reseat it.",
        "works over PCIe 1 x16 where 5 x16 is possible",
        "works over PCIe 1 x16 where 5 x16 is possible",
        "pcie downgrade",
    )
    assert said(state).rank < WORKS
    state.log.add([replace(warning, ended_s=START_S + 29)])
    assert said(state).sentence == "ok"


def test_a_warning_is_no_less_true_of_a_gpu_that_does_not_tell_what_holds_its_clocks():
    state = watched(*[sample(throttle_reasons=None)] * 30)
    state.log.add([Event("memory_full", START_S, "GPU 0 is full.", Severity.WARNING, "GPU-0")])
    assert said(state).sentence == "is full."


PERCENT = st.integers(0, 100)
READINGS = st.fixed_dictionaries(
    {
        "gpu_utilization_pct": PERCENT,
        "sm_active_pct": st.one_of(st.none(), PERCENT),
        "dram_active_pct": st.one_of(st.none(), PERCENT),
        "sm_clock_mhz": st.one_of(st.none(), st.integers(0, 1980)),
        "sm_clock_max_mhz": st.one_of(st.none(), st.just(1980)),
        "throttle_reasons": st.one_of(st.none(), st.sampled_from([0, 1, 4, 8, 0x24, 0x48])),
    }
)


@given(st.lists(READINGS, min_size=1, max_size=90))
def test_no_sentence_says_more_than_was_read(readings):
    """Every share in it is one of what was read, and a cause stands only where it was read."""
    found = said(watched(*[sample(**each) for each in readings], processes=(of(),)))
    shares = [int(each) for each in re.findall(r"(\d+) %", found.sentence)]
    assert all(0 <= share <= 100 for share in shares)
    masks = [each["throttle_reasons"] or 0 for each in readings if each["gpu_utilization_pct"]]
    for word, bits in (("power cap", 4), ("thermal", 0x60), ("hw slowdown", 8)):
        if word in found.sentence:
            assert any(mask & bits for mask in masks)
    if "below maximum" in found.sentence:
        clocks = [r["sm_clock_mhz"] for r in readings if r["sm_clock_mhz"] is not None]
        loss = int(re.search(r"clocks (\d+) %", found.sentence)[1])
        assert loss <= round(100 * (1 - min(clocks) / 1980))
        assert "little" in found.sentence or shares[-1] <= loss
    if "no kernel ran" in found.sentence and shares:
        assert shares[0] <= 100 - min(r["gpu_utilization_pct"] for r in readings)
    if not any(each["gpu_utilization_pct"] for each in readings):
        assert found.rank >= WORKS or "idle" in found.sentence
    assert len(found.texts[-1]) <= len(found.sentence)


def test_without_any_metric_nothing_is_said():
    assert sentence(sample(**dict.fromkeys(BUSY))) == "…"
    lacking = {name: Unavailable(State.NOT_SUPPORTED, START_S) for name in BUSY}
    assert sentence(sample(lacking)) == "n/a: this driver says nothing of it"


def test_it_is_of_the_gpu_that_was_asked_for():
    state = WatchState("live", clock=lambda: 0.0)
    for second in range(30):
        state.update(frame(second, WELL, sample(**CAPPED)))
    assert [why(state, h100(n)).texts[-1] for n in (0, 1)] == ["ok", "power cap"]
