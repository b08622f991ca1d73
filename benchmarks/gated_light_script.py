"""The numpy work that `gate_on_processes.py --light` gates: a start of a quarter of a second.

python gated_light_script.py               works until it is ended, as settings.json beside it says
python gated_light_script.py --calibrate   prints what a step and a unit of work take here
"""

import json
import sys
import time
from pathlib import Path

import numpy

import gpuadvisor

STEP_MS = 10.0
ELEMENTS, MOST = 1 << 10, 1 << 12
"""Elements of a unit of work, and most units."""
BLOCKS, BLOCK_STEPS, WARM_S = 12, 50, 1.0


def main() -> None:
    """Work, or time what a step takes."""
    settings = json.loads(Path(__file__).with_name("settings.json").read_text("utf-8"))
    values = numpy.random.default_rng(0).random(MOST * ELEMENTS)
    results = numpy.empty_like(values)

    def work(units: int) -> None:
        size = units * ELEMENTS
        numpy.tanh(values[:size], out=results[:size])

    def took_ms(units: int) -> float:
        began = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            work(units)
        return 1e3 * (time.perf_counter() - began) / BLOCK_STEPS

    if "--calibrate" not in sys.argv:
        while True:
            work(settings["units"])
            gpuadvisor.step()
    units, began = 64, time.perf_counter()
    while time.perf_counter() - began < WARM_S:
        took_ms(units)
    pairs = [(took_ms(units), took_ms(2 * units)) for _ in range(BLOCKS)]
    less_ms, more_ms = map(min, zip(*pairs, strict=True))  # what else runs only adds to it
    unit_ms = (more_ms - less_ms) / units
    if unit_ms <= 0:
        raise SystemExit(f"{units} more units took no time: this machine is too busy to time them")
    rest_ms = less_ms - units * unit_ms
    units = min(MOST * 3 // 4, max(1, round((STEP_MS - rest_ms) / unit_ms)))
    print(json.dumps({"units": units, "unit_ms": unit_ms, "step_ms": rest_ms + units * unit_ms}))


if __name__ == "__main__":
    main()
