"""Small copies to the GPU, many and few."""

from tests.rules.building import timeline
from tests.rules.programs import Program


def copies(count, size=8, runs=100):
    program = Program()
    for _ in range(5):
        for _ in range(count):
            program.works(10)
            program.copies(size, 1)
        program.launches("kernel", runs=runs, times=10, op=5)
    return timeline(program.made)


def computes_between(seconds):
    """Copies back to back, and once the host computes between two of them."""
    program = Program()
    for number in range(60):
        program.works(1_000_000 * seconds if number == 30 else 1)
        program.copies(8, 1)
    program.launches("kernel", runs=10_000, times=10, op=5)
    return timeline(program.made)


def hidden():
    program = Program()
    program.launches("long", runs=50_000)
    for _ in range(100):
        program.works(10)
        program.copies(8, 1, pinned=True)
    program.launches("last", runs=50_000)
    return timeline(program.made)


def behind_large_ones():
    """Small copies that the host waits for while large ones before them run."""
    program = Program()
    for _ in range(5):
        for _ in range(20):
            program.copies(1 << 20, 90, pinned=True)
            program.copies(8, 1)
        program.launches("kernel", runs=100, times=10, op=5)
    return timeline(program.made)


FIRES = {"many": lambda: copies(40), "the fewest": lambda: copies(10)}
SILENT = {
    "few": lambda: copies(9),
    "large ones": lambda: copies(40, size=1 << 20),
    "hardly any time": lambda: copies(10, runs=2000),
    "while the GPU works": hidden,
    "behind large ones, which take the time": behind_large_ones,
    "the host computes for long between two of them": lambda: computes_between(1),
}
