"""Traces of four ranks, of which now one and now another is late."""

from tests.rules.cases.straggler_rank import always, ranks


def in_turns(step, us=250):
    return [us if step % 4 == number else 0 for number in range(4)]


FIRES = {
    "each in its turn": lambda: ranks(in_turns),
    "two that are equally late": lambda: ranks(lambda step: [0, 250, 250, 20]),
    "one is always last, by less than the others differ": lambda: ranks(
        lambda step: [0, 200, 230, 0]
    ),
    "without numbers": lambda: ranks(in_turns, told=False),
}
SILENT = {
    "the same one, which is the other rule's to name": lambda: ranks(always),
    "all alike": lambda: ranks(lambda step: [0, 5, 2, 4]),
    "by little": lambda: ranks(lambda step: in_turns(step, 30)),
    "some of the ranks": lambda: ranks(in_turns, count=3),
    "broadcasts wait for nobody": lambda: ranks(in_turns, kind="broadcast"),
}
