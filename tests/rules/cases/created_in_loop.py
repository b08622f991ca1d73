"""Streams that are created in each round, and once."""

from gpuadvisor.domain.profile import CallKind
from tests.rules.building import timeline
from tests.rules.programs import Program


def rounds(creates, name="cudaStreamCreate", us=50, times=20):
    program = Program()
    for number in range(10):
        if creates(number):
            for _ in range(times):
                program.made.call(name, (program.now, us), CallKind.OTHER)
                program.now += us
        program.launches("kernel", runs=200, times=5, op=5)
        program.waits()
    return timeline(program.made)


FIRES = {
    "streams in each round": lambda: rounds(lambda _: True),
    "events in each round": lambda: rounds(lambda _: True, "cudaEventCreateWithFlags", us=20),
}
SILENT = {
    "once, before the loop": lambda: rounds(lambda number: number == 0),
    "too short to matter": lambda: rounds(lambda _: True, us=1, times=5),
    "another call": lambda: rounds(lambda _: True, "cudaFuncGetAttributes"),
}
