"""Compiled regions a step, and compilations while it runs."""

from tests.rules.building import timeline
from tests.rules.programs import Program


def regions(count, *, runs=3, same=False, between=100):
    program = Program()
    for step in range(5):
        began = program.now
        for number in range(count):
            region = program.now
            program.launches("triton", runs=runs, times=10, op=10)
            code = 0 if same else number
            length = program.now - region
            program.made.operator(f"Torch-Compiled Region: {code}/0", (region, length))
            program.works(between)
        program.step(step, began)
    return timeline(program.made)


def compiling(late):
    program = Program()
    for step in range(5):
        began = program.now
        if (step > 0) is late and step < 3:
            program.computes("entire_frame_compile", 20_000)
        region = program.now
        program.launches("triton", runs=3, times=10, op=10)
        program.made.operator("Torch-Compiled Region: 0/0", (region, program.now - region))
        program.step(step, began)
    return timeline(program.made)


FIRES = {
    "four regions": lambda: regions(4),
    "two regions": lambda: regions(2),
    "compiled again": lambda: compiling(True),
}
SILENT = {
    "one region": lambda: regions(1),
    "one piece of code for each layer": lambda: regions(4, same=True),
    "the GPU has enough to do": lambda: regions(4, runs=100, between=1),
    "compiled in the first step": lambda: compiling(False),
}
