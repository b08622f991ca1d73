"""Traces of four ranks, of which one is late always, sometimes, or by little."""

from dataclasses import replace

from tests.profiles import Made
from tests.rules.building import H100, timeline

NAME = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
STEP_US = 1000
PASSES_US = 50
RANKS = 4


def rank(
    number, late_us, told=True, kind="allreduce", size=RANKS, steps=20, clock_us=0, computes=True
):
    """Steps: a rank late by `late_us(step)` computes longer, or is idle, and waits for none.

    `late_us` gives the lateness of each rank in a step.
    """
    made = Made()
    for step in range(steps):
        late = late_us(step)
        begin = step * STEP_US + 3 * step * step  # not all alike: that would tell no two apart
        arrives = begin + 400 + late[number]
        leaves = begin + 400 + max(late) + PASSES_US
        lasts = 400 + (late[number] if computes else 0)
        made.launched("gemm", call=(begin, 5), runs=(begin, lasts))
        correlation = made.correlation()
        runs = (arrives, leaves - arrives)
        made.launched(NAME, (begin + 6, 5), runs, correlation=correlation, stream=9)
        if told:
            made.row(
                "collectives",
                correlation=correlation,
                begin_ns=round(1000 * arrives),
                name=kind,
                group="0",
                group_size=size,
                sequence=step,
            )
    evidence = timeline(made, H100)
    profile = evidence.facts.profile
    begins = 1_700_000_000_000_000_000 + round(1000 * clock_us * number)
    header = replace(profile.header, rank=number, world_size=RANKS, begin_unix_ns=begins)
    profile.finish(header)
    return evidence


def ranks(late_us, count=RANKS, **changed):
    found = tuple(rank(number, late_us, **changed) for number in range(count))
    return replace(found[0], ranks=tuple(each.facts for each in found))


def always(step):
    return [0, 10, 250, 20]


FIRES = {
    "rank 2 is late": lambda: ranks(always),
    "in three of four steps": lambda: ranks(
        lambda step: [0, 10, 250, 20] if step % 4 else [250, 10, 0, 20]
    ),
    "collectives that no number tells apart": lambda: ranks(always, told=False),
    "clocks that differ by hours": lambda: ranks(always, told=False, clock_us=4e9),
    "in a few collectives": lambda: ranks(always, steps=6),
    "by little more than the next": lambda: ranks(lambda step: [0, 10, 60, 20]),
}
SILENT = {
    "all alike": lambda: ranks(lambda step: [0, 5, 2, 4]),
    "each in its turn": lambda: ranks(
        lambda step: [250 if step % 4 == number else 0 for number in range(4)]
    ),
    "two that are equally late": lambda: ranks(lambda step: [0, 250, 250, 20]),
    "so few that it may be chance": lambda: ranks(always, steps=3),
    "some of the ranks": lambda: ranks(always, count=3),
    "broadcasts wait for nobody": lambda: ranks(always, kind="broadcast"),
}
