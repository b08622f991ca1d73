"""What is done before the tests themselves: benchmarks compared or recorded, in fresh processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

import pytest

from gpuadvisor.errors import AdvisorError, Interrupted
from gpuadvisor.interruption import stoppable
from gpuadvisor.pytest_plugin.against import compare_with_base
from gpuadvisor.pytest_plugin.comparing import Compared
from gpuadvisor.pytest_plugin.processes import Asked
from gpuadvisor.pytest_plugin.session import Session
from gpuadvisor.pytest_plugin.stored import check, record

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
