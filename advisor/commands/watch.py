"""Watch the GPUs: values, their last minute and the newest events, on a page that `q` leaves.

Without a terminal it prints the page once. Exit status: 0; 1 where there is no GPU to watch, or
nothing was measured at the time that --at names; 7 where the driver or the daemon does not answer,
and what is printed once is old, as it says.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuadvisor.daemon.endpoint.hosts import Host
    from gpuadvisor.daemon.sources import Source
    from gpuadvisor.tui.watch.state import WatchState
    from gpuadvisor.tui.watch.watched import Watched

EPILOG = """examples:
  gpuadvisor watch
  gpuadvisor watch --once
  gpuadvisor watch --replay train.gpr --speed 10
  gpuadvisor watch --at "yesterday 03:00"
  gpuadvisor watch --host node7,node8
  gpuadvisor watch --json | jq '.gpus[].metrics.power_w.value'
"""
THEMES = ("terminal", "dark", "light", "colour-blind", "mono")
PIPE_WIDTH = 200
"""Characters of a line where there is no terminal to fit."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replay", metavar="FILE", type=Path, help="a recording of `gpuadvisor record`"
    )
    parser.add_argument(
        "--host",
        metavar="A,B,...",
        nargs="?",
        const="",
        help="the GPUs of other machines, through their daemons' endpoints, such as node7,"
        " node7:9465 or https://node7.example.org; without names those of the configuration",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="the file with the bearer token of hosts for which the configuration names none;"
        " default: the token in GPUADVISOR_TOKEN",
    )
    parser.add_argument(
        "--speed",
        metavar="N",
        type=float,
        help="how fast a recording goes by; default: 1, as it was, and `inf`: at once",
    )
    parser.add_argument(
        "--read-only",
        action="store_true",
        help="send no signal, profile nothing and start no study, whatever key is hit",
    )
    parser.add_argument(
        "--theme",
        choices=THEMES,
        default=THEMES[0],
        help="colours: terminal (its own; the default), dark, light, colour-blind, mono",
    )
    parser.add_argument("--once", action="store_true", help="print what is known, and end")
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="print what was at a time, such as 14:02, 'yesterday 03:00' or 3h (ago), and end",
    )
    parser.add_argument(
        "--json", action="store_true", help="a line of JSON every second, or once with --once"
    )


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.daemon import sources

    speed = _speed(args)
    if args.host is not None or args.token_file is not None:
        return _hosts(args)
    if args.at is not None:
        return _at(args)
    is_once = _is_once(args)
    source = sources.choose(recording=args.replay, speed=math.inf if is_once else speed)
    try:
        if not is_once and not args.json:
            return _show(source, speed, args)
        state = _state(source, speed, args)
        return (_once if is_once else _stream)(source, state, args)
    finally:
        source.close()


def _state(source: Source, speed: float, args: argparse.Namespace, **of_page: bool) -> WatchState:
    import socket

    from gpuadvisor.tui.watch.state import WatchState

    told: dict[str, Any] = {"has_all_events": source.has_all_events, **of_page}
    host = "" if args.replay else socket.gethostname()
    return WatchState(source.label, host=host, rate=speed, is_past=bool(args.replay), **told)


def _show(source: Source, speed: float, args: argparse.Namespace) -> int:
    """Show the pages; the first one is drawn before all that the others need is loaded."""
    import gc
    from contextlib import closing

    from gpuadvisor.daemon import sources
    from gpuadvisor.tui.watch.first_page import FirstPage

    gc.disable()  # until all is loaded: a tenth of the start
    # Its state needs no events: conditions are looked at with the second frame.
    own = _state(source, speed, args, has_all_events=True)
    with closing(FirstPage(source, args.theme, own)) as first:
        first.begin()
        from gpuadvisor.tui.watch import app
        from gpuadvisor.tui.watch.watched import Watched

        state = _state(source, speed, args)
        state.is_in_haste = True
        store = None if args.replay else sources.stored()
        is_read_only = args.read_only or args.replay is not None
        watched = Watched(source, state, store, args.replay, is_read_only)
        return app.show(watched, args.theme, first=first)


def _is_once(args: argparse.Namespace) -> bool:
    has_screen = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return bool(args.once or not (args.json or has_screen))


def _hosts(args: argparse.Namespace) -> int:
    """Watch other machines; the exit status is 7 where one is printed that does not answer."""
    import json

    from gpuadvisor.daemon import configuration
    from gpuadvisor.daemon.endpoint import hosts
    from gpuadvisor.errors import SilentError, UsageError

    if args.host is None:
        raise UsageError("--token-file is for other machines: add --host")
    if args.replay is not None:
        raise UsageError(
            "--host shows machines, and --replay a recording: leave out one of the two"
        )
    chosen = hosts.chosen(args.host, configuration.read(None).hosts, args.token_file)
    warnings = hosts.warnings(chosen)
    if args.at is not None:
        return _hosts_at(chosen, args)
    watched = [_watched(each, args) for each in chosen]
    if not _is_once(args) and not args.json:
        from gpuadvisor.tui.watch import app

        return app.show(watched[0], args.theme, watched, " ".join(warnings))
    from gpuadvisor.tui.watch import plain_hosts

    for warning in warnings:
        print(f"gpuadvisor: {warning}", file=sys.stderr)
    if not _is_once(args):
        try:
            plain_hosts.stream(watched, sys.stdout)
        except KeyboardInterrupt:
            return 0
    status = 0 if plain_hosts.once(watched) else SilentError.exit_code
    if args.json:
        print(json.dumps(plain_hosts.document(watched)))
    else:
        _print(plain_hosts.lines(watched, _width()))
    return status


def _hosts_at(chosen: Sequence[Host], args: argparse.Namespace) -> int:
    """Print what was at a moment on other machines; 7 where one does not tell, 1 where nothing was
    measured on any."""
    import json
    import time

    from gpuadvisor.errors import SilentError
    from gpuadvisor.tui.watch import plain_hosts

    now_s = time.time()
    at_s = _moment(args, now_s)
    told = plain_hosts.moments(chosen, at_s)
    if args.json:
        print(json.dumps(plain_hosts.moments_document(told, at_s)))
    else:
        _print(plain_hosts.moments_lines(told, _width(), now_s))
    if any(isinstance(found, str) for _, found in told):
        return SilentError.exit_code
    return 0 if any(not isinstance(found, str) and found.is_measured for _, found in told) else 1


def _watched(host: Host, args: argparse.Namespace) -> Watched:
    from gpuadvisor.daemon.endpoint.remote import Remote
    from gpuadvisor.tui.watch.state import WatchState
    from gpuadvisor.tui.watch.watched import Watched

    remote = Remote(host)
    state = WatchState(remote.label, host=host.name, has_all_events=True)
    state.is_here = False
    return Watched(remote, state, read_only=args.read_only, remote=remote)


def _once(source: Source, state: WatchState, args: argparse.Namespace) -> int:
    from gpuadvisor.errors import SilentError
    from gpuadvisor.tui.watch import plain

    is_current = plain.once(source, state, to_the_end=args.replay is not None)
    status = 0 if is_current else SilentError.exit_code
    if args.json:
        print(plain.as_json(state))
        return status
    _print(plain.table(state, _width()))
    return status


def _at(args: argparse.Namespace) -> int:
    """Print what was at a moment; the exit status is 1 where nothing was measured."""
    import json
    import time

    from gpuadvisor.daemon import history
    from gpuadvisor.daemon.past import of_recording
    from gpuadvisor.daemon.store import running, store_folder
    from gpuadvisor.tui.watch import then

    past = of_recording(args.replay) if args.replay else history.open_reader(None)
    span = past.span()
    now_s = time.time() if args.replay is None or span is None else span[1]
    moment = past.moment(_moment(args, now_s))
    if args.json:
        print(json.dumps(then.document(moment)))
    else:
        is_current = args.replay is not None or running(store_folder()) is not None
        _print(then.printed(moment, _width(), now_s, is_current=is_current))
    return 0 if moment.is_measured else 1


def _moment(args: argparse.Namespace, end_s: float) -> float:
    """Return the Unix time that is asked for; UsageError where it is none, or after the end."""
    from gpuadvisor.daemon import history
    from gpuadvisor.errors import UsageError

    at_s = history.moment("--at", args.at, end_s)
    if at_s > end_s:
        raise UsageError(f"--at {args.at} is after the end: choose a time before")
    return at_s


def _print(lines: Iterable[str]) -> None:
    encoding = sys.stdout.encoding or "utf-8"  # which may lack some of our characters
    for line in lines:
        print(line.encode(encoding, "replace").decode(encoding))


def _width() -> int:
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH


def _stream(source: Source, state: WatchState, args: argparse.Namespace) -> int:
    import time

    from gpuadvisor.tui.watch import plain

    try:
        if args.replay:
            plain.stream(source, state, sys.stdout)
        else:  # what a daemon stored before is history, and no line of now
            plain.stream(
                source, state, sys.stdout, since_s=time.time(), patience_s=plain.PATIENCE_S
            )
    except KeyboardInterrupt:  # how one who reads a stream ends it
        return 0
    return 0


def _speed(args: argparse.Namespace) -> float:
    from gpuadvisor.errors import UsageError

    if args.speed is None:
        return 1.0
    if args.replay is None:
        raise UsageError("--speed is for a recording: add --replay FILE")
    if not args.speed > 0:
        raise UsageError(f"--speed takes a number above 0, not {args.speed}")
    return float(args.speed)
