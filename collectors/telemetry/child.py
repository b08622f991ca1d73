"""The sampler's process: `python -m gpuadvisor.collectors.telemetry.child OPTIONS`.

The options are a JSON object, `fast_period_s`, `hurried` and `known`, the GPUs as another sampler
listed them last: argparse would cost half a MB all day.

A frame a line on the standard output, and before the first one a line for each step of the start: a
frame whose problem is that the driver is starting. It ends when its standard input does, so that
it outlives nobody, even when a call into the driver never returns.

An Xid error that a poll keeps back, as one that hangs does for ever, comes in a frame of its own,
which is no sign of life of the driver: without samples.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from gpuadvisor.collectors.nvml.sampler import Sampler
from gpuadvisor.collectors.telemetry.encoding import encode
from gpuadvisor.domain.metrics import SamplingInterval
from gpuadvisor.domain.telemetry import STARTING, Frame, Gpu

WHOLE_S = SamplingInterval.NORMAL.period_s
KEPT_BACK_S = 0.3
"""Time that a poll is given to tell an error: long before a silent child is replaced."""
SETTLED_POLLS = 20
"""Polls after which nearly all that is needed is loaded and made."""


def main() -> None:
    """Sample until the parent goes away."""
    options = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent
    threading.Thread(target=_end_with_parent, daemon=True).start()
    known = [_gpu(each) for each in options["known"]]
    noted = threading.Event()
    sampler = Sampler(
        hurried=options["hurried"], known=known, on_step=_tell_step, on_error=noted.set
    )
    threading.Thread(target=_tell_errors, args=(sampler, noted), daemon=True).start()
    for polls, full in enumerate(rhythm(options["fast_period_s"])):
        _tell(sampler.poll(full=full), in_haste=polls == 0)
        if polls == SETTLED_POLLS:
            settle()


def _gpu(fields: dict[str, Any]) -> Gpu:
    capability = fields["compute_capability"]  # JSON has no tuples
    return Gpu(**{**fields, "compute_capability": capability and tuple(capability)})


def settle() -> None:
    """Have the garbage collector look no more at what is there to stay: a tenth of the CPU time."""
    gc.collect()
    gc.freeze()


def _tell_step() -> None:
    _tell(Frame(time.time(), full=False, problem=STARTING), in_haste=True)


def _tell_errors(sampler: Sampler, noted: threading.Event) -> None:
    while noted.wait():
        noted.clear()
        time.sleep(KEPT_BACK_S)
        if events := sampler.take_errors():
            _tell(Frame(time.time(), full=False, events=events), in_haste=True)


_TELLING = threading.Lock()


def _tell(frame: Frame, *, in_haste: bool) -> None:
    line = encode(frame, in_haste=in_haste) + b"\n"
    try:
        with _TELLING:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(0)


def rhythm(fast_s: float | None) -> Iterator[bool]:
    """Return when it is time for a poll: True for a full one, False for one between.

    The times are multiples on the monotonic clock, so nothing drifts; what is missed is left out.
    """
    steps = 1 if fast_s is None else max(1, round(WHOLE_S / fast_s))
    period_s = WHOLE_S / steps
    began_s = time.monotonic()
    step = 0
    last_full = -1
    while True:
        full = step // steps > last_full
        if full:
            last_full = step // steps
        yield full
        passed = (time.monotonic() - began_s) / period_s
        step = max(step + 1, int(passed))
        time.sleep(max(0.0, began_s + step * period_s - time.monotonic()))


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(1 << 16):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
