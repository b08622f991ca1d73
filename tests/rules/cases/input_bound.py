"""Waiting for batches, with and without a GPU that works meanwhile."""

from gpuadvisor.domain.knobs import LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.profile import Direction, Memory, Range
from gpuadvisor.rules.evidence import Evidence
from tests.profiles import Made
from tests.rules.building import timeline
from tests.rules.programs import Program
from tests.simulation import measurement


def waits(length, kernel=100):
    """Three steps, each of a wait and a kernel, in microseconds."""
    made = Made()
    at = 0
    for _ in range(3):
        made.range("enumerate(DataLoader)#_Iter.__next__", (at, length), Range.LOADER)
        made.launched("work", call=(at + length, 5), runs=(at + length + 8, kernel))
        at += length + kernel + 10
    return timeline(made)


def script(share, loaders=1, idle=None):
    loader = LoaderFacts(32, 1, False, False, None)
    return Evidence(
        measured=measurement(
            [10.0] * 8,
            windows=(StepWindow(100, 1.0, data_wait_s=share),),
            facts=ScriptFacts(loaders=(loader,) * loaders, idle_while_waiting=idle),
        )
    )


def on_cpu(wait):
    """Three steps of a millisecond without a GPU."""
    made = Made()
    for number in range(3):
        made.range(f"ProfilerStep#{number}", (1000 * number, 1000), Range.STEP)
        made.range("enumerate(DataLoader)#_Iter.__next__", (1000 * number, wait), Range.LOADER)
    return timeline(made, device=None)


def hidden():
    """The wait is as long, but the GPU works on what was queued before."""
    made = Made()
    made.launched("long", call=(0, 5), runs=(8, 2000))
    made.range("enumerate(DataLoader)#_Iter.__next__", (10, 1900), Range.LOADER)
    made.launched("next", call=(1950, 5), runs=(2008, 100))
    return timeline(made)


def workers(first, others):
    """Five steps with workers, of which the first wait is of another length."""
    program = Program()
    for number in range(5):
        program.loads(others if number else first, "_MultiProcessingDataLoaderIter")
        program.launches("kernel", runs=100, times=10, op=20)
    return timeline(program.made)


def weights():
    """A model that is made for long, its parameters, and a kernel after each of these."""
    program = Program()
    program.launches("kernel", runs=100)
    program.computes("aten::normal_", 900_000)
    for _ in range(20):
        program.computes("aten::normal_", 2000)
        program.copies(4 << 20, 12)
        program.launches("kernel", runs=100)
    return timeline(program.made)


def preparing(us, size=4 << 20, steps=5, marked=True, kernels=10):
    """No DataLoader: an operator of the CPU, then a copy."""
    program = Program()
    for number in range(steps):
        began = program.now
        program.computes("aten::normal_", us)
        program.copies(size, 12)
        if kernels:
            program.launches("kernel", runs=100, times=kernels, op=5)
        if marked:
            program.step(number, began)
    if not kernels:
        program.launches("kernel", runs=100, times=50, op=5)
    return timeline(program.made)


def unmarked(us, steps=5):
    """Before each copy of a batch the host is in no call, and nothing else of it is recorded."""
    made = Made()
    at = 0
    for _ in range(steps):
        made.copied(
            call=(at + us, 400),
            runs=(at + us + 5, 390),
            bytes=4 << 20,
            direction=Direction.HOST_TO_DEVICE,
            source=Memory.PAGEABLE,
            destination=Memory.DEVICE,
        )
        for number in range(10):
            called = at + us + 410 + 6 * number
            made.launched("kernel", call=(called, 5), runs=(at + us + 420 + 100 * number, 100))
        at += us + 1420
    return timeline(made)


FIRES = {
    "the GPU is idle": lambda: waits(900),
    "without a profile": lambda: script(0.25),
    "without a profile, with a GPU that works in half of the waits": lambda: script(0.25, idle=0.5),
    "on the CPU": lambda: on_cpu(400),
    "with workers": lambda: workers(3000, 3000),
    "what is copied is made first": lambda: preparing(5000),
    "in each of two steps": lambda: preparing(5000, steps=2),
    "nothing of the host is recorded but its calls": lambda: unmarked(5000),
    "no step is marked": lambda: preparing(5000, marked=False),
}
SILENT = {
    "of two batches, nothing of the host is recorded": lambda: unmarked(5000, steps=2),
    "weights that were made once, long before many small copies": weights,
    "a short wait on the CPU": lambda: on_cpu(10),
    "the start of the workers": lambda: workers(50_000, 1),
    "workers that have the batch ready": lambda: workers(190, 190),
    "what is copied is made meanwhile": lambda: preparing(700),
    "what is copied is small": lambda: preparing(5000, size=1024),
    "what is copied is made twice, as at a start": lambda: preparing(5000, steps=2, marked=False),
    "weights are loaded, one after the other": lambda: preparing(
        5000, steps=20, marked=False, kernels=0
    ),
    "a wait too short to matter": lambda: waits(1),
    "the GPU works meanwhile": hidden,
    "without a profile, with a GPU that works meanwhile": lambda: script(0.5, idle=0.006),
    "a script that does not wait": lambda: script(0.01),
    "a script without loaders": lambda: script(0.5, loaders=0),
}
