"""Steps, memory, and what a profile does not tell."""

import numpy as np
import pytest

from gpuadvisor.domain.profile import TABLES, UNKNOWN, Range
from gpuadvisor.rules.facts.memory import MOST_POINTS
from gpuadvisor.rules.facts.steps import StepSource
from gpuadvisor.rules.facts.summary import FACTS, Facts
from tests.profiles import TEXT_COLUMNS, Made

US = 1000


def ranges(*rows):
    made = Made()
    for name, when, *kind in rows:
        made.range(name, when, *kind)
    return made


def names(made):
    steps = Facts(made.profile()).steps
    return None if steps is None else (steps.source, [step.name for step in steps.steps])


def test_steps_of_the_profiler_come_first():
    made = ranges(
        ("ProfilerStep#3", (100, 50), Range.STEP),
        ("ProfilerStep#2", (0, 100), Range.STEP),
        ("step 1", (0, 10)),
        ("step 2", (20, 10)),
    )
    assert names(made) == (StepSource.PROFILER, ["ProfilerStep#2", "ProfilerStep#3"])


@pytest.mark.parametrize(
    "called", ["step {}", "Step#{}", "iteration_{}", "iter{}", "train_step", "training step {}"]
)
def test_ranges_that_the_program_called_steps(called):
    made = ranges((called.format(1), (0, 10)), (called.format(2), (10, 10)), ("forward", (1, 2)))
    assert names(made) == (StepSource.RANGES, [called.format(1), called.format(2)])


def test_what_lies_between_calls_of_the_one_optimizer():
    made = ranges(*(("Optimizer.step#Adam.step", (at, 10)) for at in (50, 150, 300)))
    steps = Facts(made.profile()).steps
    assert steps.source is StepSource.OPTIMIZER
    assert [(step.begin_ns, step.duration_ns) for step in steps.steps] == [
        (60 * US, 100 * US),
        (160 * US, 150 * US),
    ]
    assert steps.median_ns == 125 * US


def test_two_optimizers_of_one_class_are_of_one_step():
    calls = [at + each for at in (50, 150, 300) for each in (0, 12)]
    made = ranges(*(("Optimizer.step#SGD.step", (at, 10)) for at in calls))
    steps = Facts(made.profile()).steps.steps
    assert [(step.begin_ns, step.duration_ns) for step in steps] == [
        (72 * US, 100 * US),
        (172 * US, 150 * US),
    ]


def test_optimizers_of_a_gan_that_work_apart_are_a_step_each():
    made = ranges(*(("Optimizer.step#SGD.step", (at, 10)) for at in (50, 90, 150, 190)))
    assert len(Facts(made.profile()).steps.steps) == 3


@pytest.mark.parametrize(
    "rows",
    [
        [("forward", (0, 10)), ("forward", (20, 10))],
        [("step 1", (0, 10))],
        [("step 1", (0, 10)), ("step 2", (5, 10))],  # they overlap
        [("stepwise", (0, 10)), ("stepwise", (20, 10))],
        [("Optimizer.step#A.step", (0, 5)), ("Optimizer.step#B.step", (10, 5))],  # of a GAN
        [("step 1", (0, 10), Range.DEVICE), ("step 2", (20, 10), Range.DEVICE)],
    ],
)
def test_nothing_is_guessed(rows):
    assert names(ranges(*rows)) is None


def test_what_a_step_did():
    made = ranges(
        ("ProfilerStep#1", (0, 100), Range.STEP),
        ("ProfilerStep#2", (100, 100), Range.STEP),
        ("enumerate(DataLoader)#_Iter.__next__", (90, 30), Range.LOADER),
    )
    made.launched("gemm", call=(20, 5), runs=(50, 40))
    made.launched("gemm", call=(30, 5), runs=(90, 20), stream=8)
    made.launched("gemm", call=(210, 5), runs=(300, 10))
    steps = Facts(made.profile()).steps
    assert [(step.device_busy_ns, step.data_wait_ns) for step in steps.steps] == [
        (50 * US, 10 * US),
        (10 * US, 20 * US),
    ]
    assert steps.data_wait_share == pytest.approx(0.15)


def test_totals_that_were_not_recorded_leave_memory_unknown():
    made = full()
    told = {"memory.allocated_bytes": "this version of PyTorch did not write totals"}
    facts = Facts(made.profile(not_measured=told))
    assert facts.not_measured["memory"] == told["memory.allocated_bytes"]


def allocate(made, time, size, total, address, device=0):
    made.row(
        "memory",
        time_ns=time * US,
        device=device,
        bytes=size,
        allocated_bytes=total,
        reserved_bytes=2 * total,
        address=address,
    )


def test_the_peak_of_memory_and_who_allocated():
    made = Made()
    made.operator("aten::conv2d", (0, 10))
    made.operator("aten::empty", (1, 4))
    made.operator("aten::mm", (20, 10))
    allocate(made, 2, 100, 1100, address=1)
    allocate(made, 8, 300, 1400, address=2)
    allocate(made, 9, -100, 1300, address=1)
    allocate(made, 22, 500, 1800, address=1)  # an address is used again
    allocate(made, 40, -500, 1300, address=1)
    allocate(made, 3, 7, 7, address=1, device=UNKNOWN)
    host, device = Facts(made.profile()).memory
    assert (host.device, host.peak_allocated_bytes) == (UNKNOWN, 7)
    assert (device.peak_allocated_bytes, device.peak_reserved_bytes) == (1800, 3600)
    assert device.peak_ns == 22 * US
    assert [(each.bytes, each.operator) for each in device.alive_at_peak] == [
        (500, "aten::mm"),
        (300, "aten::conv2d"),
    ]
    assert device.older_bytes == 1000
    assert device.curve == ((2000, 1100), (8000, 1400), (9000, 1300), (22000, 1800), (40000, 1300))


def test_a_long_curve_keeps_its_highest_points():
    made = Made()
    for at in range(3 * MOST_POINTS):
        allocate(made, at, 1, 10_000 if at == 777 else at, address=at)
    (device,) = Facts(made.profile()).memory
    assert len(device.curve) == MOST_POINTS
    assert max(total for _, total in device.curve) == 10_000


def test_an_empty_profile_knows_nothing_and_says_so():
    facts = Facts(Made().profile(not_measured={"memory": "recorded without profile_memory"}))
    assert set(facts.not_measured) == set(FACTS)
    assert facts.not_measured["memory"] == "recorded without profile_memory"


def full():
    made = ranges(("ProfilerStep#1", (0, 100), Range.STEP))
    made.operator("aten::mm", (0, 30), shapes="[[4, 8], [8, 2]]", types='["float", "float"]')
    made.launched("gemm", call=(10, 5), runs=(60, 100))
    made.copied(call=(20, 5), runs=(170, 10), bytes=1000)
    allocate(made, 2, 100, 1100, address=1)
    return made


def test_what_is_not_measured_is_told():
    assert set(Facts(full().profile()).not_measured) == {"counted_kernels"}


def test_only_columns_that_are_needed_are_asked_for():
    class Counting:
        def __init__(self, profile):
            self.profile, self.header, self.rows = profile, profile.header, profile.rows
            self.tables = set()

        def columns(self, table, names=None):
            self.tables.add(table)
            return self.profile.columns(table, names)

    profile = Counting(full().profile())
    facts = Facts(profile)
    assert profile.tables == set()
    assert facts.busy[0].busy_ns == 110 * US
    assert profile.tables == {"kernels", "copies"}


def row_of(table, number):
    """A row of the same number as far as each column's type goes; texts are the reader's own."""
    row = {}
    for name, kind in TABLES[table].items():
        if name in TEXT_COLUMNS and kind == "int32":
            row[name] = np.zeros(1, kind)
        elif kind.startswith("float"):
            row[name] = np.array([np.nan])
        else:
            limits = np.iinfo(kind)
            row[name] = np.array([max(limits.min, min(limits.max, number))], kind)
    return row


def test_hostile_numbers_are_survived():
    profile = full().profile()
    for table in TABLES:
        for number in (2**63 - 1, -(2**63), 0, -1):
            profile.add(table, row_of(table, number))
    facts = Facts(profile)
    for name in FACTS.keys() - {"counted_kernels"}:
        getattr(facts, name)
    assert isinstance(facts.ncu_kernels, tuple)
    for device in facts.idle:
        assert sum(device.causes_ns.values()) == device.without_kernel_ns
    for device in facts.busy:
        assert 0 <= device.busy_ns <= device.span_ns
