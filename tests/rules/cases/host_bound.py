"""What the host does between launches."""

from tests.profiles import Made
from tests.rules.building import timeline
from tests.rules.programs import Program


def pauses(us, runs=200, *, cpu=False, marked=True):
    program = Program()
    for number in range(5):
        began = program.now
        for _ in range(4):
            if cpu:
                program.computes("aten::sort", us)
            else:
                program.works(us)
            program.launches("kernel", runs=runs)
        if marked:
            program.step(number, began)
    return timeline(program.made)


def fetches():
    """Steps that fetch their loss, and then do something else for less long than the GPU works:
    either of the two gone, the GPU would be busy."""
    program = Program()
    for number in range(5):
        began = program.now
        program.launches("kernel", runs=5000)
        program.item()
        program.works(4000)
        program.step(number, began)
    return timeline(program.made)


def of_calls_alone(us, name="kernel"):
    """A program of which only calls into CUDA were recorded."""
    made = Made()
    for number in range(20):
        at = (us + 200.0) * number
        made.launched(name.format(number), call=(at, 5), runs=(at + 8, 200), grid_x=100)
    return timeline(made)


FIRES = {
    "no operators at all": lambda: of_calls_alone(800),
    "after a fetch, which hides it from the run without fetches": fetches,
    "Python": lambda: pauses(1000),
    "an operator of the CPU": lambda: pauses(1000, cpu=True),
    "not much longer than the GPU": lambda: pauses(300),
}
SILENT = {
    "shorter than what the GPU does": lambda: pauses(150),
    "not long enough": lambda: pauses(202),
    "at the pace of launches": lambda: pauses(60, runs=5),
    "nothing is marked": lambda: pauses(1000, marked=False),
    "no operators, and launches at a pace": lambda: of_calls_alone(9),
    "no operators, and each kernel once": lambda: of_calls_alone(800, "kernel{}"),
}
