"""Allocated memory at the begin of each step."""

from tests.rules.queued import K, queued

MIB = 1 << 20


def steps(levels):
    """A step of 10 kernels for each level."""
    return queued(
        [K("work")] * 10 * len(levels),
        ranges=[
            (f"step {number}", 10 * number, 10 * number + 9.5) for number in range(len(levels))
        ],
        memory=[
            (9 + 50 * number - 0.5, level * MIB, 2000 * MIB) for number, level in enumerate(levels)
        ],
    )


FIRES = {"each step keeps some": lambda: steps([100, 500, 510, 520, 530, 540, 550, 560])}
SILENT = {
    "steady": lambda: steps([100, 500, 500, 500, 500, 500, 500]),
    "up and down": lambda: steps([100, 500, 510, 505, 520, 510, 530]),
    "only at the begin": lambda: steps([100, 200, 300, 300, 300, 300, 300]),
    "too few steps": lambda: steps([100, 500, 510, 520, 530, 540]),
}
