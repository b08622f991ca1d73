"""Record what the GPUs do into a file, to be shown anywhere: until Ctrl-C, or while a command runs.

A command is begun at once, whatever the GPUs do.

Exit status: that of the command, if there is one, also where nothing could be recorded; 0 after
Ctrl-C or when the time is over; 1 where there is no GPU to record; 7 where the driver does not
answer.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path

EPILOG = """examples:
  gpuadvisor record -o train.gpr -- python train.py --epochs 1
  gpuadvisor record -o night.gpr --duration 8h
"""
FAST_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="the recording, FILE.gpr"
    )
    parser.add_argument("--duration", metavar="TIME", help="such as 90s, 10m or 8h")
    parser.add_argument(
        "--fast", action="store_true", help="read fast values ten times a second, not once"
    )
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.set_defaults(takes_rest=True)


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.daemon import sources
    from gpuadvisor.daemon.configured_values import SecondOrMore, Wrong
    from gpuadvisor.errors import UsageError
    from gpuadvisor.interruption import stoppable

    if args.output.exists() and not args.force:
        raise UsageError(f"{args.output} is there already: choose another name, or add --force")
    try:
        duration_s = None if args.duration is None else SecondOrMore.read(args.duration)
    except Wrong as wrong:
        raise UsageError(f"--duration takes {wrong}, not {args.duration!r}") from None
    with stoppable() as stop:
        source = sources.Live(FAST_S if args.fast else None)
        done = sources.capture(
            source,
            args.output,
            command=args.rest or (),
            duration_s=duration_s,
            stopped_by=lambda: stop.exit_status - 128 if stop.requested() else 0,
            warn=lambda sentence: _say(f"gpuadvisor: {sentence}"),
        )
    if not done.frames:
        return done.status
    gpus = "1 GPU" if done.gpus == 1 else f"{done.gpus} GPUs"
    _say(
        f"{done.path}: {gpus}, {done.seconds:.0f} s in {done.frames} frames, "
        f"{done.size_bytes / 1e3:.0f} kB"
    )
    return done.status


def _say(line: str) -> None:
    with suppress(OSError):  # nobody listens, which must not cost the command's status
        print(line, file=sys.stderr, flush=True)
