"""Whole studies on simulated machines, whose time passes on the machines' own clocks."""

from __future__ import annotations

import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest

from gpuadvisor.domain.study import StudyResult
from gpuadvisor.storage.database import Store
from gpuadvisor.tuning.trials import trial_runner
from tests.study_simulation import Machine, studies


@contextmanager
def quick_studies() -> Iterator[Callable[..., tuple[StudyResult, list[str]]]]:
    """Give what `studies` gives, without what takes most of a study's half second and decides
    nothing here."""
    with (
        tempfile.TemporaryDirectory() as folder,
        studies(Path(folder)) as tuned,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(Store, "finish_study", lambda *_: None)
        patch.setattr(trial_runner, "LoadMeter", lambda device: None)
        yield tuned


def studied(machine: Machine, seconds: float) -> StudyResult:
    """Return what a study of so many seconds finds on a machine."""
    with quick_studies() as tuned:
        return tuned(machine, seconds)[0]


def arguments(about: str, **others: float) -> Namespace:
    """Read the arguments of a program whose table has rows of several seeds; of `others`, which are
    numbers, as long as they are not given."""
    parser = ArgumentParser(description=about.partition("\n")[0])
    for name, usual in {"seeds": 8, "first": 0, "jobs": 1, **others}.items():
        parser.add_argument(f"--{name}", type=type(usual), default=usual)
    parser.add_argument("--only", default="", help="name of one script")
    return parser.parse_args()
