"""`--gpuadvisor-base`: benchmarks of both versions in pairs of fresh processes."""

from __future__ import annotations

import os

import pytest

from gpuadvisor.errors import UsageError
from gpuadvisor.pytest_plugin.comparing import Compared, Comparing
from gpuadvisor.pytest_plugin.processes import Asked, Side, machine
from gpuadvisor.tuning.gate.configuration import shared_values
from gpuadvisor.tuning.gate.options import GateOptions, Own
from gpuadvisor.tuning.gate.setting_up import SetUps
from gpuadvisor.tuning.gate.sides import both_places, ready


def compare_with_base(asked: Asked) -> Compared:
    """Compare benchmarks with the base; errors as of a gate. No folder and no process is left."""
    config = asked.config
    base = config.getoption("gpuadvisor_base")
    links, setup = _configured(config)
    with machine(asked) as here:
        options = GateOptions(here.command, base, links=links)
        with both_places(options) as (*places, notes):
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
            rootpath, top = config.rootpath.resolve(), sides["base"].top.resolve()
            if not rootpath.is_relative_to(top):
                raise UsageError(
                    f"the tests' root {rootpath} is not in the repository {top}: give --rootdir"
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
