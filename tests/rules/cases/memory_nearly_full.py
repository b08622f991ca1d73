"""Memory that is nearly full."""

from tests.rules.queued import K, queued

GIB = 1 << 30


def memory(allocated, reserved):
    return queued([K("work")] * 3, memory=[(5, allocated * GIB, reserved * GIB)])


FIRES = {"in use": lambda: memory(74, 76), "reserved": lambda: memory(60, 73)}
SILENT = {"room": lambda: memory(60, 70), "not recorded": lambda: queued([K("work")])}
