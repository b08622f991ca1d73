"""What scripts under the harness are forked of, and the program in this process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import gettempdir

import pytest

from gpuadvisor import cli
from gpuadvisor.collectors.script.templates import Template
from gpuadvisor.storage.locks import locked
from tests.integration import program, runs


@pytest.fixture(scope="module")
def torch_imported() -> Iterator[Template | None]:
    """`runs.torch_imported`, for the scripts of a module that all import torch."""
    with runs.torch_imported() as template:
        yield template


@pytest.fixture(scope="module")
def cpu() -> Iterator[None]:
    """The CPU for this module's studies: those of two modules would refuse each other."""
    with locked(Path(gettempdir()) / "gpuadvisor-tests" / "cpu.lock", wait=True):
        yield


@pytest.fixture
def gpuadvisor(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The program in a process of its own, in a folder that has its home, too."""
    return program_in(tmp_path)


def program_in(folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return what `gpuadvisor` is, in this folder."""

    def call(*args: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "GPUADVISOR_HOME": str(folder / "home")}
        return subprocess.run(
            [sys.executable, "-m", "gpuadvisor", *args],
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
            timeout=600,
        )

    return call


@pytest.fixture
def here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., program.Answer]:
    """`program.run` in this process, where a process of its own would mostly import."""

    def here(home: Path, *words: str, **variables: str) -> program.Answer:
        for name, value in program.environment(home, *words[:1], **variables).items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(home)
        capsys.readouterr()
        status = cli.main(words)
        said = capsys.readouterr()
        return program.Answer(status, said.out, said.err)

    return here
