"""Ranks beside each other: who came last, told from traces alone, however the clocks differ."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.profile import GROUP_RANKS
from gpuadvisor.rules.facts.communication import collective_calls, kernel_collective
from gpuadvisor.rules.facts.device_work import Work
from gpuadvisor.rules.facts.lanes import Tokens, lanes
from gpuadvisor.rules.facts.matching import ENOUGH, match
from gpuadvisor.rules.facts.ranks import ranks_of
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made

NAMES = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "sendrecv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
}
TRANSFER_US = 40.0
SURELY_ENOUGH = 8
"""So many collectives without numbers are matched whatever they last; of 1,500 runs of 6 or 7, 8
were left in doubt."""


@dataclass
class Kernel:
    name: str
    begin_us: float
    end_us: float
    group: str
    size: int
    sequence: int
    elements: int


@dataclass
class Simulated:
    """Ranks that compute and meet in collectives, on one true clock."""

    ranks: int
    now_us: list = field(default_factory=list)
    kernels: list = field(default_factory=list)
    computed: list = field(default_factory=list)
    arrivals: list = field(default_factory=list)
    """Of each collective of all ranks, when each came."""
    counts: dict = field(default_factory=dict)

    def __post_init__(self):
        self.now_us = [0.0] * self.ranks
        self.kernels = [[] for _ in range(self.ranks)]
        self.computed = [[] for _ in range(self.ranks)]

    def compute(self, rank, us):
        self.computed[rank].append((self.now_us[rank], us))
        self.now_us[rank] += us

    def meet(self, members, kind="allreduce", group="0", elements=1000, jitter_us=0.0):
        """All members wait for the last one; then the data pass."""
        begins = [self.now_us[rank] for rank in members]
        end = max(begins) + TRANSFER_US
        sequence = self.counts[group, members] = self.counts.get((group, members), 0) + 1
        for place, rank in enumerate(members):
            mine = end + jitter_us * (place % 3)
            kernel = (NAMES[kind], begins[place], mine, group, len(members), sequence, elements)
            self.kernels[rank].append(Kernel(*kernel))
            self.now_us[rank] = mine
        if len(members) == self.ranks:
            self.arrivals.append(begins)

    def facts(
        self, rank, told=True, clock_us=0.0, missing=0, knows_time=True, numbered=True, **header
    ):
        """Return what a trace of one rank tells, without its first collectives."""
        made = Made()
        kept = self.kernels[rank][missing:]
        first = kept[0].begin_us
        for begin, us in self.computed[rank]:
            if begin >= first:
                made.kernel("gemm", (begin - first, us), correlation=made.correlation())
        for each in kept:
            correlation = made.correlation()
            runs = each.begin_us - first, each.end_us - each.begin_us
            stream = 20 if each.size == self.ranks else 30
            made.kernel(each.name, runs, correlation=correlation, stream=stream)
            if told:
                made.row(
                    "collectives", correlation=correlation, begin_ns=round(1000 * runs[0]),
                    name=kernel_collective(each.name), in_elements=each.elements,
                    group=each.group, group_size=each.size,
                    sequence=each.sequence if numbered else -1,
                )  # fmt: skip
        begins = 10**18 + round(1000 * (first + clock_us)) if knows_time else None
        return Facts(made.profile(rank=rank, begin_unix_ns=begins,
                                  **{"world_size": self.ranks, **header}))  # fmt: skip


def counted(simulated, skip=0):
    """Return by own count how often each rank came last, and how long was waited in all."""
    arrivals = simulated.arrivals[skip:]
    last = [0] * simulated.ranks
    for each in arrivals:
        last[each.index(max(each))] += 1
    return last, sum(max(each) - min(each) for each in arrivals)


def steps(works, jitter_us=0.0):
    """A step for each row of works: what each rank computes before all meet."""
    simulated = Simulated(len(works[0]))
    for number, row in enumerate(works):
        for rank, us in enumerate(row):
            simulated.compute(rank, us)
        everyone = tuple(range(simulated.ranks))
        simulated.meet(everyone, jitter_us=jitter_us, elements=1000 + number % 2)
    return simulated


seeds = st.integers(0, 2**32 - 1)


def works(seed, ranks=None):
    """Return what each rank computes in each step, all different."""
    drawn = random.Random(seed)
    ranks = ranks or drawn.randint(2, 5)
    return [drawn.sample(range(100, 2000, 3), ranks) for _ in range(drawn.randint(6, 14))]


@settings(max_examples=25, deadline=None)
@given(seeds, st.booleans())
def test_who_came_last_however_the_clocks_differ(seed, told):
    rows = works(seed)
    clocks_us = [random.Random(seed + rank).randint(-(10**9), 10**9) for rank in range(5)]
    simulated = steps(rows)
    found = ranks_of([
        simulated.facts(rank, told, clocks_us[rank]) for rank in range(simulated.ranks)
    ])  # fmt: skip
    last, waited_us = counted(simulated)
    if found.unmatched is not None:  # chance can have matched few that nothing numbers
        assert (told, found.collectives) == (False, 0)
        assert len(rows) < SURELY_ENOUGH
        return
    assert found.collectives == len(rows)
    assert {each.place: each.last for each in found.late} == {
        rank: times for rank, times in enumerate(last) if times
    }
    assert found.waited_ns == pytest.approx(1000 * waited_us, abs=1000 * len(rows))
    for rank, each in enumerate(found.ranks):
        own = sum(max(row) - row[rank] for row in simulated.arrivals)
        assert each.waiting_ns == pytest.approx(1000 * own, abs=1000 * len(rows))
        assert each.transferring_ns == pytest.approx(
            1000 * TRANSFER_US * len(rows), abs=1000 * len(rows)
        )
        assert each.waiting_ns + each.transferring_ns <= each.exposed_ns


@settings(max_examples=25, deadline=None)
@given(seeds, st.booleans())
def test_recordings_that_begin_at_different_collectives(seed, told):
    rows = works(seed)
    missing = [random.Random(seed + rank).randint(0, 2) for rank in range(5)]
    simulated = steps(rows, jitter_us=1.5)
    found = ranks_of([
        simulated.facts(rank, told, missing=missing[rank]) for rank in range(simulated.ranks)
    ])  # fmt: skip
    skipped = max(missing[: simulated.ranks])
    if not told and len(rows) - skipped < ENOUGH:
        assert found.collectives == 0
        assert "in doubt" in found.unmatched
        return
    assert found.collectives == len(rows) - skipped
    last, _ = counted(simulated, skipped)
    told_last = {each.place: each.last for each in found.late}
    # Ends differ by up to 3 us: which of two that came so close together was last cannot be told.
    ties = sum(sorted(each)[-1] - sorted(each)[-2] <= 3 for each in simulated.arrivals[skipped:])
    assert sum(abs(told_last.get(rank, 0) - times) for rank, times in enumerate(last)) <= 2 * ties


@settings(max_examples=10, deadline=None)
@given(seeds, st.sets(st.integers(0, 7), min_size=1, max_size=6))
def test_of_ranks_without_a_trace_nothing_is_concluded(seed, absent):
    simulated = steps(works(seed, ranks=8)[:6])
    found = ranks_of([simulated.facts(rank) for rank in range(8) if rank not in absent])
    here = 8 - len(absent)
    assert found.absent == len(absent)
    assert found.late == ()
    assert found.unmatched == f"{here} of 8 ranks are here, and another one may come later still"
    assert all(each.waiting_ns is not None for each in found.ranks), (
        "how long those waited is known"
    )


@settings(max_examples=10, deadline=None)
@given(seeds, st.integers(-(10**6), 10**6))
def test_groups_within_a_run_are_told_apart(seed, clock_us):
    pairs_and_all(seed, True, clock_us)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_groups_that_nothing_names_are_told_apart_by_their_times(seed):
    pairs_and_all(seed, False, 0)


def pairs_and_all(seed, told, clock_us):
    """Two pairs that look alike, of which now one and now the other works longer, and one group of
    all."""
    drawn = random.Random(seed)
    simulated = Simulated(4)
    rows = []
    for step in range(8):
        slow = step % 2 * 2
        row = [drawn.randint(300, 600) + 2000 * (rank // 2 * 2 == slow) for rank in range(4)]
        rows.append(row)
        for rank, us in enumerate(row):
            simulated.compute(rank, us)
        simulated.meet((0, 1), group="pair")
        simulated.meet((2, 3), group="pair")
        simulated.meet((0, 1, 2, 3), group="all")
    found = ranks_of([simulated.facts(rank, told, clock_us * rank) for rank in range(4)])
    pairs = sum(abs(row[0] - row[1]) + abs(row[2] - row[3]) for row in rows)
    both = sum(max(each) - min(each) for each in simulated.arrivals)
    assert found.collectives == 3 * len(rows)
    assert found.waited_ns == pytest.approx(1000 * (pairs + both), abs=3000 * len(rows))


def one_late(rounds, differ_us, *kinds, every=1):
    """Four ranks that nothing names, one of which comes late in `every` so many rounds, and that
    leave up to 60 us apart."""
    drawn, order, simulated = random.Random(7), random.Random(1), Simulated(4)
    for number in range(rounds):
        for rank in range(4):
            is_late = rank == 2 and number % every == 0
            simulated.compute(rank, 300 + drawn.randint(0, 40) + differ_us * is_late)
        kind = order.choice(kinds or ("allreduce",))
        simulated.meet((0, 1, 2, 3), kind, jitter_us=drawn.choice([0.0, 15.0, 30.0]))
    return simulated


@pytest.mark.parametrize(
    ("rounds", "differ_us", "clocks_us", "is_known"),
    [(20, 5_000, 0, True), (20, 5_000, 10_000, False), (8, 5_000, 0, False), (20, 0, 0, False)],
)
def test_ends_that_differ_by_more_than_10_us_need_many_long_waits_and_one_clock(
    rounds, differ_us, clocks_us, is_known
):
    simulated = one_late(rounds, differ_us)
    found = ranks_of([simulated.facts(rank, False, clocks_us * rank) for rank in range(4)])
    assert (found.unmatched is None) is is_known
    if is_known:
        assert found.late[0].place == 2 and found.late[0].last == found.collectives == rounds
        assert 4_000_000 < found.late[0].longest_ns < 6_000_000


@pytest.mark.parametrize(
    ("rounds", "differ_us", "clocks_us", "is_known"),
    [(9, 50_000, 0, True), (9, 50_000, 10_000, False), (9, 200, 0, False), (5, 50_000, 0, False)],
)
def test_few_waits_are_enough_if_they_are_long_and_differ(rounds, differ_us, clocks_us, is_known):
    simulated = one_late(rounds, differ_us, every=3)
    found = ranks_of([simulated.facts(rank, False, clocks_us * rank) for rank in range(4)])
    assert (found.unmatched is None) is is_known
    if is_known:
        assert next(each.last for each in found.late if each.place == 2) >= rounds // 3


@pytest.mark.parametrize(("clocks_us", "is_known"), [(25.0, True), (500.0, False)])
def test_clocks_of_a_machine_may_be_farther_apart_where_one_order_fits(clocks_us, is_known):
    simulated = one_late(24, 5_000, "allreduce", "sendrecv")
    found = ranks_of([simulated.facts(rank, False, clocks_us * rank) for rank in range(4)])
    assert [each.place for each in found.late] == [2] * is_known


def matched_of(every):
    """Return the groups that were matched."""
    tokens, all_lanes = Tokens(), []
    for rank, facts in enumerate(every):
        calls = collective_calls(facts.profile, facts.work, 0)
        all_lanes += lanes(rank, facts.work, calls, tokens)
    return match(all_lanes, [each.profile.header.begin_unix_ns for each in every]).groups


def found_of(simulated, every):
    """Return the members of each group that was matched, and what its collectives really are."""
    identities = []
    for rank, facts in enumerate(every):
        rows = collective_calls(facts.profile, facts.work, 0).rows.tolist()
        kept = simulated.kernels[rank][-len(rows) :]
        what = [(each.group, each.sequence) for each in kept]
        identities.append(dict(zip(rows, what, strict=True)))
    return [
        (each.ranks, [
            {identities[rank][row] for rank, row in zip(each.ranks, column, strict=True)}
            for column in each.rows.T.tolist()
        ])
        for each in matched_of(every)
    ]  # fmt: skip


@example(4369, 40, 0, [(0, 1, 2, 3)])  # two of the four leave a collective alike, the others later
@example(203, 40, 0, [(0, 1, 2, 3)])
@example(8879, 2000, 0, [(0, 1, 2, 3)])
@example(8822, 300, 0, [(0, 1, 2, 3)])
@given(
    seeds,
    st.sampled_from([40, 300, 2000]),
    st.sampled_from([0, 10**4, 10**9]),
    st.sampled_from([[(0, 1), (2, 3)], [(0, 2), (1, 3)], [(0, 1, 2, 3)], [(0, 1, 2), (3, 4)],
                     [(0, 1), (2, 3), (0, 1, 2, 3)], [(0, 1), (2, 3), (4, 5)]]),
)  # fmt: skip
def test_collectives_without_names_or_numbers_are_never_taken_for_each_other(
    seed, differ_us, clocks_us, groups
):
    """Whether work differs by 40 us a step or by 2 ms, on one machine or several."""
    drawn = random.Random(seed)
    ranks = 1 + max(rank for group in groups for rank in group)
    simulated = Simulated(ranks)
    base = [drawn.randint(300, 900)] * ranks
    if drawn.random() < 0.5:
        base = [drawn.randint(300, 900) for _ in range(ranks)]
    loose_us = drawn.choice([1.5, 1.5, 60.0])
    for _ in range(drawn.randint(4, 14) if loose_us < 2 else drawn.randint(4, 24)):
        for group in groups:
            for rank in group:
                simulated.compute(rank, base[rank] + drawn.randint(0, differ_us))
            simulated.meet(group, group=str(group), jitter_us=drawn.choice([0, loose_us]))
    every = [
        simulated.facts(
            rank, False, drawn.randint(-clocks_us, clocks_us), drawn.randint(0, 1),
            knows_time=seed % 3 > 0,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    matched = found_of(simulated, every)
    for members, collectives in matched:
        assert all(len(each) == 1 for each in collectives)
        assert any(set(members) <= set(group) for group in groups)
    found = ranks_of(every)
    if found.collectives:
        whole = [group for group in groups if group in [tuple(sorted(each)) for each, _ in matched]]
        if len(whole) < len(groups):
            whole = [group for group in whole if len(group) == ranks]
        last, close = [0] * ranks, 0
        for group in whole:
            for begins in common_to(simulated, every, group):
                last[group[begins.index(max(begins))]] += 1
                close += sorted(begins)[-1] - sorted(begins)[-2] <= 2 * loose_us + 2
        told = {each.place: each.last for each in found.late}
        assert sum(abs(told.get(rank, 0) - times) for rank, times in enumerate(last)) <= 2 * close


def common_to(simulated, every, group):
    """Return when each member came to the collectives of a group that all have recorded."""
    recorded = []
    for rank in group:
        kept = int((every[rank].work.kind == Work.COMMUNICATION).sum())
        recorded.append({
            each.sequence: each.begin_us
            for each in simulated.kernels[rank][-kept:] if each.group == str(group)
        })  # fmt: skip
    common = set.intersection(*(set(each) for each in recorded))
    return [[each[sequence] for each in recorded] for sequence in sorted(common)]


@settings(max_examples=25, deadline=None)
@given(seeds, st.booleans(), st.sampled_from([0, 10**6]))
def test_ranks_that_leave_a_collective_at_different_times(seed, numbered, clock_us):
    """Alike in name and size, without numbers matched on one clock only, as some end late."""
    drawn = random.Random(seed)
    simulated = steps(works(seed, ranks=2))
    late = drawn.sample(range(len(simulated.arrivals)), len(simulated.arrivals) // 3)
    for each in late:
        simulated.kernels[1][each].end_us += drawn.randint(30, 90)
    every = [
        simulated.facts(rank, numbered=numbered, clock_us=clock_us * rank) for rank in range(2)
    ]
    assert all(len(what) == 1 for _, each in found_of(simulated, every) for what in each)
    found = ranks_of(every)
    if clock_us and not numbered:
        assert found.unmatched is not None
        return
    last, _ = counted(simulated)
    assert found.collectives == len(simulated.arrivals)
    assert {each.place: each.last for each in found.late} == {
        rank: times for rank, times in enumerate(last) if times
    }


@pytest.mark.parametrize("knows_ranks", [False, True])
def test_groups_of_one_name_on_other_ranks(knows_ranks):
    """Two pairs that keep step: only the ranks of each tell them apart."""
    simulated = Simulated(4)
    for step in range(8):
        for rank in range(4):
            simulated.compute(rank, 300 + step * step + 70 * ((step + rank) % 2))
        simulated.meet((0, 1), group="pair")
        simulated.meet((2, 3), group="pair")
    every = [
        simulated.facts(
            rank,
            numbered=False,
            knows_time=False,
            facts={GROUP_RANKS + "pair": "0, 1" if rank < 2 else "2, 3"} if knows_ranks else {},
        )
        for rank in range(4)
    ]
    found = ranks_of(every)
    if knows_ranks:
        assert [each.ranks for each in matched_of(every)] == [(0, 1), (2, 3)]
        assert found.collectives == 16
    else:
        assert found.unmatched is not None


def test_stages_of_a_pipeline_have_no_straggler():
    """Each stage sends to the next one: who receives waits, which is no lateness of all."""
    simulated = Simulated(4)
    for _ in range(12):
        for stage in range(3):
            simulated.compute(stage, 500)
            simulated.meet((stage, stage + 1), "sendrecv", group="pipe")
        simulated.compute(3, 500)
    found = ranks_of([simulated.facts(rank, told=False) for rank in range(4)])
    assert found.collectives == 0 or all(each.chance > 0.05 for each in found.late)


def test_traces_of_different_steps_are_not_laid_upon_each_other():
    one = steps([[500, 600, 900]] * 4 + [[100, 1900, 300]] * 4)
    other = steps([[1900, 100, 1500]] * 5 + [[100, 200, 1200]] * 3)
    found = ranks_of([
        one.facts(0, told=False), one.facts(1, told=False),
        other.facts(2, told=False, missing=3),
    ])  # fmt: skip
    assert found.collectives == 0
    assert found.unmatched is not None


def test_the_gpus_of_one_trace_are_its_ranks():
    simulated = steps([[100, 900], [200, 800], [150, 700], [300, 1000], [250, 600], [100, 500]])
    made = Made()
    for device in range(2):
        for each in simulated.kernels[device]:
            made.kernel(each.name, (each.begin_us, each.end_us - each.begin_us), device=device)
    found = ranks_of([Facts(made.profile())])
    assert [each.name for each in found.ranks] == ["GPU 0", "GPU 1"]
    assert [(each.place, each.last) for each in found.late] == [(1, 6)]


def test_collectives_behind_each_other_wait_for_one_delay_once():
    """Of two ranks one computes 100 us more before its first collective, in each step.

    The other one is done with its own 150 us by then and waits in both collectives, for 100 us and
    for 80 us more, and yet a step without that delay is 100 us shorter and no more.
    """
    works = {0: ((0, 50), (50, 150)), 1: ((0, 150), (150, 250))}
    meets = {0: ((50, 170), (170, 270)), 1: ((150, 170), (250, 270))}
    steps, step_us = 10, 270
    every = []
    for rank in range(2):
        made = Made()
        for number in range(steps):
            for begin, end in works[rank]:
                made.kernel("gemm", (number * step_us + begin, end - begin), stream=7)
            for place, (begin, end) in enumerate(meets[rank]):
                correlation, at = made.correlation(), number * step_us + begin
                made.kernel(NAMES["allreduce"], (at, end - begin), correlation=correlation,
                            stream=20)  # fmt: skip
                made.row("collectives", correlation=correlation, begin_ns=1000 * at,
                         name="allreduce", group="0", group_size=2,
                         sequence=2 * number + place)  # fmt: skip
        every.append(Facts(made.profile(rank=rank, begin_unix_ns=10**18, world_size=2)))
    found = ranks_of(every)
    late = found.straggler
    assert late.late.place == 1
    assert late.group.span_ns == 1000 * (steps * step_us - 50), "since the first one waited"
    assert late.group.own_ns == (150_000 * steps - 50_000, 250_000 * steps - 50_000)
    assert late.surplus_ns == 100_000 * steps
    assert late.idle_ns == 0
    assert found.waited_ns == 180_000 * steps, "and waiting counts the same delay nearly twice"


def test_one_rank_is_none():
    assert ranks_of([steps([[100, 200]] * 4).facts(0)]) is None


def test_clocks_that_drift():
    """20 us a second over two minutes: 2.4 ms, against waits of less than one."""
    simulated = Simulated(2)
    for step in range(400):
        simulated.compute(0, 300_000)
        simulated.compute(1, 300_000 + (700 if step % 3 else -700))
        simulated.meet((0, 1))
    for kernel in simulated.kernels[1]:
        kernel.begin_us *= 1 + 2e-5
        kernel.end_us *= 1 + 2e-5
    found = ranks_of([simulated.facts(rank, told=False) for rank in range(2)])
    last, waited_us = counted(simulated)
    assert {each.place: each.last for each in found.late} == dict(enumerate(last))
    assert found.waited_ns == pytest.approx(1000 * waited_us, rel=0.1)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allreduce"),
        ("ncclKernel_AllReduce_TREE_LL_Sum_half(ncclDevComm*, unsigned long)", "allreduce"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "allreduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_bf16", "reducescatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "sendrecv"),
        ("rccl_main_kernel(ncclDevComm*)", "main"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "generic"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>", ""),
    ],
)
def test_what_the_name_of_a_kernel_tells(name, kind):
    assert kernel_collective(name) == kind
