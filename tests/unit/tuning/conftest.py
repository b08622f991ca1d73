"""Studies in stores of their own, without what Optuna repeats for each."""

from collections.abc import Iterator

import pytest

from gpuadvisor.errors import ScriptError
from gpuadvisor.storage.database import Store
from gpuadvisor.tuning.live import screening, supply_timer
from gpuadvisor.tuning.trials import trial_runner


@pytest.fixture(scope="session", autouse=True)
def migrations_are_read_once() -> Iterator[None]:
    """For each new file Optuna reads its own migrations up to three times, which takes 0.2 s."""
    from alembic.script import ScriptDirectory

    read = ScriptDirectory.from_config
    known: dict[str | None, ScriptDirectory] = {}

    def once(config):
        place = config.get_main_option("script_location")
        if place not in known:
            known[place] = read(config)
        return known[place]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", once)
        yield


@pytest.fixture
def on_disk() -> None:
    """Each trial is stored when it ends, and Optuna's record lies beside ours, as for users."""


@pytest.fixture
def in_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study is stored when it ends, and Optuna keeps its record of it in memory, which takes half
    off a simulated study. Not where the test asks for `on_disk`.
    """
    if "on_disk" not in request.fixturenames:
        from optuna.storages import InMemoryStorage

        monkeypatch.setattr(Store, "optuna_storage", InMemoryStorage())
        monkeypatch.setattr(Store, "add_trial", lambda *_: None)  # `finish_study` adds all trials


@pytest.fixture(autouse=True)
def nothing_runs_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts of these studies have no process whose knobs could be turned.

    `test_screened_studies.py` and `test_turning.py` simulate one, `test_supplied_studies.py` one
    with a loader.
    """

    def run_live(*_: object) -> None:
        raise ScriptError("there is no process")

    def run_in_turns(request, live, start, blocks, *meters):
        return trial_runner.run_script(request, *meters), None

    monkeypatch.setattr(trial_runner, "run_in_turns", run_in_turns)
    monkeypatch.setattr(screening, "run_live", run_live)
    monkeypatch.setattr(supply_timer, "run_supply", run_live)
