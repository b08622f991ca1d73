"""The hooks stand on private names of torch, so they are tried with the oldest and the newest one.

Each gets an environment of its own: some gigabytes, where pip finds only builds for CUDA.
"""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
"""Index of builds without CUDA; where it cannot be reached, pip's own index has to do."""
HOOKS = (
    "tests/unit/collectors/script",
    "tests/unit/tuners/knobs",
    "tests/integration/test_step_clock.py",
    "tests/integration/test_life.py",
    "tests/integration/test_live.py",
)
"""Tests that run hooks and knobs in the script's process."""


def requirement(which: str) -> str:
    """Return what pip is asked for: the oldest torch that pyproject.toml allows, or the newest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (torch,) = project["optional-dependencies"]["torch"]
    found = re.fullmatch(r"torch>=(\d+\.\d+)", torch)
    assert found, torch
    return f"torch=={found[1]}.0" if which == "oldest" else "torch"


@pytest.fixture(params=["oldest", "newest"])
def python(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The interpreter of an environment with that torch, and else with what this one has."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    wanted = requirement(request.param)
    command = [python, "-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "60"]
    command += ["--extra-index-url", CPU_BUILDS, "--upgrade", wanted, "numpy"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        said = run.stderr.strip().splitlines() or ["pip said nothing"]
        pytest.skip(f"pip has no {wanted} for Python {sysconfig.get_python_version()}: {said[-1]}")
    place = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    lines = [f"import site; site.addsitedir({each!r})" for each in site.getsitepackages()]
    (place / "zz_beside.pth").write_text("\n".join(lines) + "\n")  # after its own
    return python


@pytest.mark.timeout(5400)  # a busy machine installs and imports torch slowly
def test_hooks_and_knobs(python: Path) -> None:
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "filterwarnings="]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    run = subprocess.run(
        [*command, "-m", "not slow and not wheel and not gpu", *HOOKS],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
