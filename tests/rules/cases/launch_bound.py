"""Kernels shorter than their launches, with and without a GPU that has enough to do."""

from tests.profiles import Made
from tests.rules.building import timeline
from tests.rules.programs import Program


def launching(times, runs, op=20):
    program = Program()
    program.launches("kernel", runs=runs, times=times, op=op)
    return timeline(program.made)


def loading_kernels():
    """Three first launches take 100 ms each; the others keep the GPU busy."""
    program = Program()
    for _ in range(3):
        program.launches("new", runs=500, op=100_000)
        program.launches("kernel", runs=50, times=200, op=20)
    return timeline(program.made)


def after_long_one():
    """As slow a host, but the GPU has much to do already."""
    program = Program()
    program.launches("long", runs=50_000)
    program.launches("short", runs=3, times=300, op=20)
    return timeline(program.made)


def between(short, gap, last=0):
    """Launched long before, and the GPU does nothing between them, nor before one that is last."""
    made = Made()
    if last:
        end = 2000 + 40 * (short + gap) + last
        made.launched("short", call=(400, 5), runs=(end, short))
    for number in range(40):
        runs = (2000 + number * (short + gap), short)
        made.launched("short", call=(number * 10, 5), runs=runs, stream=number % 2)
    return timeline(made)


def waits_for_workers():
    program = Program()
    for _ in range(5):
        program.loads(2000, "_MultiProcessingDataLoaderIter")
        program.launches("kernel", runs=3, times=200, op=20)
    return timeline(program.made)


FIRES = {
    "kernels shorter than their launches": lambda: launching(500, runs=3),
    "near the threshold": lambda: launching(500, runs=19),
    "short kernels with gaps that are not the host's": lambda: between(5, gap=4),
    "while workers set the pace, for information": waits_for_workers,
}
SILENT = {
    "kernels longer than their launches": lambda: launching(500, runs=26),
    "kernels that are loaded": loading_kernels,
    "hidden by a long kernel": after_long_one,
    "long kernels with gaps that are not the host's": lambda: between(50, gap=20),
    "short kernels with gaps that nothing explains": lambda: between(5, gap=20),
    "short kernels with one long gap": lambda: between(5, gap=1, last=5000),
    "short kernels with short gaps": lambda: between(9, gap=1.4),
}
