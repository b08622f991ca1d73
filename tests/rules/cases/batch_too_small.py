"""Small grids with and without room for more."""

from tests.rules.queued import K, grid, queued

GIB = 1 << 30
LITTLE, MUCH = [(5.0, GIB, 2 * GIB)], [(5.0, 50 * GIB, 60 * GIB)]
SMALL, LARGE = K("layer", 50, more=grid(16)), K("layer_of_many", 50, more=grid(1000))

FIRES = {
    "small grids, free memory": lambda: queued([SMALL] * 20, memory=LITTLE),
    "most of the time": lambda: queued([SMALL, SMALL, LARGE] * 9, memory=LITTLE),
}
SILENT = {
    "memory in use": lambda: queued([SMALL] * 20, memory=MUCH),
    "large grids": lambda: queued([LARGE] * 20, memory=LITTLE),
    "less than half of the time": lambda: queued([SMALL, LARGE, LARGE] * 9, memory=LITTLE),
    "one block on most multiprocessors": lambda: queued(
        [K("persistent", 50, more=grid(120))] * 20, memory=LITTLE
    ),
    "memory was not recorded": lambda: queued([SMALL] * 20),
}
