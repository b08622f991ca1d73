"""Reserved memory, in use and not."""

from tests.rules.queued import K, queued

GIB = 1 << 30


def memory(allocated, reserved):
    return queued([K("work")] * 3, memory=[(5, allocated * GIB, reserved * GIB)])


FIRES = {
    "half of it unused": lambda: memory(30, 60),
    "just enough": lambda: memory(27, 40),
}
SILENT = {
    "in use": lambda: memory(60, 62),
    "unused, but nobody needs it": lambda: memory(5, 30),
    "a little unused": lambda: memory(40, 56),
}
