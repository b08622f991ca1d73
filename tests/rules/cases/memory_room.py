"""Free memory."""

from tests.rules.queued import K, queued

GIB = 1 << 30


def memory(reserved):
    return queued([K("work")] * 3, memory=[(5, GIB, reserved * GIB)])


FIRES = {"most is free": lambda: memory(2), "half": lambda: memory(39)}
SILENT = {"less than half": lambda: memory(41), "not recorded": lambda: queued([K("work")])}
