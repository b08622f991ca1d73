"""Watch the GPUs all the time: store, events, alerts and metrics for Prometheus.

Exit status: 0 where it was done; `status` exits with 0 where the daemon runs and stores, else 1;
`run` and `start` exit with 1 where there is no GPU, and with 2 where a daemon runs already.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import add_actions, add_json, run_action
from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.daemon.configured_values import Address

EXAMPLE = "example: gpuadvisor daemon start --prometheus 127.0.0.1:9465"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    add = add_actions(parser)
    run_parser = add(
        "run", "be the daemon in the foreground, as systemd and containers want it", _run
    )
    run_parser.add_argument("--log-file", metavar="FILE", type=Path, help=argparse.SUPPRESS)
    start_parser = add("start", "begin it in the background, and return once it is ready", _start)
    for each in (run_parser, start_parser):
        _add_settings(each)
        each.add_argument(
            "--wait-for-gpu", action="store_true", help="stay where there is no GPU or driver yet"
        )
    add("stop", "end it", _stop)
    status = add("status", "say whether it runs, and what it sees", _status)
    add_json(status)
    add("reload", "have it read its configuration again", _reload)
    install = add("install", "write a systemd unit for it", _install)
    whose = install.add_mutually_exclusive_group()
    whose.add_argument("--user", action="store_true", help="a unit of your own (default)")
    whose.add_argument("--system", action="store_true", help="a unit of the machine's")
    install.add_argument("--print", action="store_true", help="only print the unit")
    _add_settings(install)
    add("uninstall", "remove that unit", _uninstall).add_argument(
        "--system", action="store_true", help="the machine's unit, not your own"
    )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="its configuration (default: gpuadvisor/gpuadvisor.toml in $XDG_CONFIG_HOME, then"
        " in /etc)",
    )
    parser.add_argument(
        "--fast", action="store_true", help="read what changes quickly ten times a second"
    )
    parser.add_argument(
        "--prometheus", metavar="ADDRESS:PORT", help="offer metrics here, such as 127.0.0.1:9465"
    )


def run(args: argparse.Namespace) -> int:
    return run_action(args)


def _run(args: argparse.Namespace) -> int:
    from gpuadvisor.daemon import daemon

    daemon.run(
        daemon.Chosen(
            args.config, args.fast, _address(args.prometheus), args.wait_for_gpu, args.log_file
        )
    )
    return 0


def _start(args: argparse.Namespace) -> int:
    from gpuadvisor.commands._output import note
    from gpuadvisor.daemon import background

    options = [*_settings(args), *(["--wait-for-gpu"] if args.wait_for_gpu else [])]
    started = background.start(options)
    if started.remark:
        note(started.remark)
    print(f"The daemon runs (process {started.pid}); its log is {started.log}")
    return 0


def _stop(args: argparse.Namespace) -> int:
    from gpuadvisor.daemon import background

    process = background.stop()
    print("No daemon runs on this store." if process is None else f"Stopped process {process}.")
    return 0


def _status(args: argparse.Namespace) -> int:
    from gpuadvisor.daemon import background, store

    found = background.read_status(store.store_folder())
    if args.json:
        import json

        print(json.dumps(found, indent=2))
    else:
        print(background.format_status(found))
    return 0 if found["fresh"] else 1


def _reload(args: argparse.Namespace) -> int:
    from gpuadvisor.daemon import background

    process = background.reload()
    print(f"Process {process} reads its configuration again; its log says what it found.")
    return 0


def _install(args: argparse.Namespace) -> int:
    from gpuadvisor.daemon import systemd

    options = _settings(args)
    if args.print:
        print(systemd.unit(system=args.system, options=options), end="")
        return 0
    print(f"Wrote {systemd.install(system=args.system, options=options)}; now run:")
    print("\n".join(f"  {command}" for command in systemd.commands(system=args.system)))
    return 0


def _uninstall(args: argparse.Namespace) -> int:
    from gpuadvisor.daemon import systemd

    path = systemd.path(system=args.system)
    systemctl = "sudo systemctl" if args.system else "systemctl --user"
    if not path.exists():
        print(f"There is no unit {path}.")
        return 0
    systemd.remove(path)
    print(f"Removed {path}; now run:\n  {systemctl} disable --now {systemd.UNIT}")
    return 0


def _settings(args: argparse.Namespace) -> list[str]:
    """Return the choices as words again, with paths that hold from every folder."""
    from gpuadvisor.daemon import configuration

    words: list[str] = []
    if args.config:
        path = args.config.absolute()
        configuration.read(path)  # a wrong one is said now, and not to a log
        words += ["--config", str(path)]
    if args.fast:
        words.append("--fast")
    if args.prometheus:
        _address(args.prometheus)
        words += ["--prometheus", args.prometheus]
    return words


def _address(given: str | None) -> Address | None:
    from gpuadvisor.daemon.configured_values import Address, Wrong

    if given is None:
        return None
    try:
        return Address.read(given)
    except Wrong as wrong:
        raise UsageError(f"--prometheus must be {wrong}, not {given!r}.") from None
