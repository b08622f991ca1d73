"""What is done before the tests themselves: benchmarks compared or recorded, in fresh processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import pytest

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.errors import AdvisorError, Interrupted, UsageError
from gpuadvisor.interruption import stoppable
from gpuadvisor.pytest_plugin.comparing import Compared, Comparing
from gpuadvisor.pytest_plugin.fresh_processes import Asked, Side, machine
from gpuadvisor.pytest_plugin.session import Session
from gpuadvisor.pytest_plugin.stored import check, record
from gpuadvisor.tuning.gate.configuration import shared_values
from gpuadvisor.tuning.gate.options import GateOptions, Own
from gpuadvisor.tuning.gate.setting_up import SetUps
from gpuadvisor.tuning.gate.sides import Place, both_places, ready


def compare_with_base(asked: Asked) -> Compared:
    """Compare benchmarks with the base; errors as of a gate. No folder and no process is left."""
    config = asked.config
    base = config.getoption("gpuadvisor_base")
    links, setup = _configured(config)

    @contextmanager
    def versions(command: Command) -> Iterator[tuple[Place, Place, tuple[str, ...]]]:
        with both_places(GateOptions(command, base, links=links)) as found:
            root, top = config.rootpath.resolve(), found[0].top
            if top is not None and not root.is_relative_to(top.resolve()):
                raise UsageError(
                    f"the tests' root {root} is not in the repository {top}: give --rootdir"
                )
            yield found

    with machine(versions) as (here, (*places, notes)):
        for note in notes:
            asked.tell(note)
        setups = SetUps(here.folder, asked.tell, asked.cancelled)
        sides = {}
        for name, place in zip(("base", "head"), places, strict=True):
            assert place.root is not None and place.top is not None  # it is a commit
            side = ready(place, here.command, Own(), here.python, {})
            done = setups.of(side, setup)
            if done.problem:
                asked.tell(f"the set-up of {place.name} printed:\n{done.output}")
                raise UsageError(f"the set-up of {place.name} failed: {done.problem}")
            folder = here.folder / name
            sides[name] = Side(
                config, done.side, place.top, place.root, here.device, folder, here.ours
            )
        found = Compared(f"{base} ({(places[0].commit or '')[:12]})")
        run = Comparing(
            lambda side, only: sides[side].run(only), asked.tests, found, tell=asked.tell
        )
        return run.go()


def _configured(config: pytest.Config) -> tuple[tuple[str, ...], str | None]:
    """Return what both versions are linked, and their set-up: of the options and of the project's
    table for gates, whose links are relative to its file. Links add up."""
    links, setup = tuple(config.getoption("gpuadvisor_link")), None
    if (found := shared_values(config.rootpath)) is not None:
        path, shared = found
        there = (os.path.relpath(path.parent / each) for each in shared.get("link", ()))
        links, setup = (*there, *links), shared.get("setup-cmd")
    return tuple(dict.fromkeys(links)), config.getoption("gpuadvisor_setup_cmd") or setup


WORKS: Mapping[str, Callable[[Asked], Compared | None]] = {
    "gpuadvisor_base": compare_with_base,
    "gpu_benchmark_record": record,
    "gpu_benchmark_check": check,
}
"""What is done before the tests themselves, by the pytest option that asks for it."""

OURS = {
    "--store": "--gpu-benchmark-store",
    "--link": "--gpuadvisor-link",
    "--setup-cmd": "--gpuadvisor-setup-cmd",
    "--base-folder and --head-folder": "`gpuadvisor gate --base-folder old --head-folder new`",
}
"""What the gate calls options, in its errors, and what they are here."""


def go_ahead(session: Session, items: Sequence[pytest.Item], option: str) -> None:
    """Do what an option asks for, and keep the result; pytest.UsageError if that cannot be."""
    terminal = session.config.pluginmanager.getplugin("terminalreporter")
    capture = session.config.pluginmanager.getplugin("capturemanager")

    def tell(sentence: str) -> None:
        if terminal is None:
            return
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            terminal.ensure_newline()
            terminal.write_line(f"gpu-benchmark: {sentence}")

    if not items:
        tell("no test uses gpu_benchmark, so there is nothing to run for that")
        return
    try:
        with stoppable() as stop:
            asked = Asked(session.config, items, tell, stop.requested)
            session.compared = WORKS[option](asked)
    except Interrupted:
        raise KeyboardInterrupt from None
    except AdvisorError as error:
        sentence = str(error)
        for words, ours in OURS.items():
            sentence = sentence.replace(words, ours)
        raise pytest.UsageError(f"--{option.replace('_', '-')}: {sentence}") from None
