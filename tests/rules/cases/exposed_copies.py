"""Copies of pinned memory, hidden and not."""

from gpuadvisor.domain.profile import Direction, Memory
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


def both_ways(kernel_us, at_once):
    """As much to the GPU as back, by turns or at once; kernels lie beside copies then."""
    made = Made()
    for number in range(20):
        at = 1000.0 * number
        back_at = at if at_once else at + 500 + kernel_us
        kernel_at = at if at_once else at + 490
        sizes = {"bytes": 12_000_000}
        to_gpu = {"source": Memory.PINNED, "destination": Memory.DEVICE}
        back = {"source": Memory.DEVICE, "destination": Memory.PINNED}
        took = 990 if at_once else 480
        made.copied((at - 10, 2), (at, took), direction=Direction.HOST_TO_DEVICE, **to_gpu, **sizes)
        made.copied((at - 6, 2), (back_at, took), stream=9, direction=Direction.DEVICE_TO_HOST,
                    **back, **sizes)  # fmt: skip
        made.launched("kernel", call=(at - 3, 2), runs=(kernel_at, kernel_us), stream=8)
    return timeline(made)


FIRES = {
    "by turns to the GPU and back": lambda: both_ways(5, at_once=False),
    "to the GPU": lambda: batches(32 << 20),
    "to the host": lambda: batches(32 << 20, to_host=True),
    "near the threshold": lambda: batches(3 << 20),
}
SILENT = {
    "hidden behind a kernel": hidden,
    "pageable memory": lambda: batches(32 << 20, pinned=False),
    "below the threshold": lambda: batches(2 << 20),
}
