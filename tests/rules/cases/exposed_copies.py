"""Copies of pinned memory, hidden and not."""

from tests.profiles import Made
from tests.rules.building import timeline
from tests.rules.programs import Program


def batches(size, *, pinned=True, to_host=False):
    program = Program()
    for _ in range(4):
        program.copies(size, 25, pinned=pinned, to_host=to_host)
        program.launches("kernel", runs=500, times=10, op=20)
    return timeline(program.made)


def hidden():
    made = Made()
    for step in range(4):
        at = step * 5000
        made.launched("kernel", call=(at, 5), runs=(at + 8, 4990))
        made.copied(call=(at + 10, 5), runs=(at + 100, 3000), bytes=75_000_000, stream=9)
    return timeline(made)


FIRES = {
    "to the GPU": lambda: batches(32 << 20),
    "to the host": lambda: batches(32 << 20, to_host=True),
    "near the threshold": lambda: batches(3 << 20),
}
SILENT = {
    "hidden behind a kernel": hidden,
    "pageable memory": lambda: batches(32 << 20, pinned=False),
    "below the threshold": lambda: batches(2 << 20),
}
