"""What the store keeps, and what it says when it is asked for what it does not have."""

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import pytest

from gpuadvisor.domain.device import Device, Environment
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.measurement import Measurement, StepWindow
from gpuadvisor.domain.study import Objective, StudyResult, Trial, TrialState
from gpuadvisor.errors import StoreError, UsageError
from gpuadvisor.storage.database import open_store

ENVIRONMENT = Environment(
    Device("cuda", 0, "NVIDIA H100 80GB HBM3", "GPU-1", 85_520_809_984, (9, 0), 16),
    "3.12.3",
    "2.8.0",
    "12.8",
    "9.10",
    "580.82",
    "Linux-6.8-x86_64",
    "0.1.0",
)


def measurement(step_ms=10.0):
    windows = tuple(StepWindow(5, 5 * step_ms / 1e3, 160.0, 0.001, 12.5) for _ in range(3))
    return Measurement(
        "optimizer", (step_ms,) * 15, windows, 4, "dataloader", 2**31, 2**32, 3.5, 9.0
    )


def trial(number, **fields):
    fields = {"phase": "search", "state": TrialState.COMPLETE, "settings": {"tf32": True}} | fields
    return Trial(number, **fields)


def result(name, trials=(), **fields):
    return StudyResult(
        name,
        "train.py",
        ("--epochs", "1"),
        ENVIRONMENT,
        Level.BALANCED,
        Objective.THROUGHPUT,
        **{"verdict": "no_gain", "baseline": measurement(), "best": None} | fields,
        trials=tuple(trials),
    )


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "gpuadvisor.db") as opened:
        yield opened


@pytest.fixture
def create(store):
    def create(name=None, script="train.py", args=("--epochs", "1")):
        return store.create_study(
            name, script, args, ENVIRONMENT, Level.BALANCED, Objective.THROUGHPUT
        )

    return create


def count(store, table):
    with closing(sqlite3.connect(store.path)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_trials_come_back_by_number_while_the_study_runs(store, create):
    create("a")
    late, early = trial(1, measurement=measurement()), trial(0, phase="baseline")
    store.add_trial("a", late)
    store.add_trial("a", early)
    assert store.trials("a") == [early, late]


def test_a_trial_is_stored_once(store, create):
    create("a")
    store.add_trial("a", trial(3))
    with pytest.raises(StoreError, match="Trial 3 of study a is stored already"):
        store.add_trial("a", trial(3))


def test_a_finished_study_replaces_what_changed_and_keeps_what_it_does_not_name(store, create):
    create("a")
    for number in range(3):
        store.add_trial("a", trial(number, measurement=measurement()))
    changed = trial(1, measurement=measurement(8.0), gain=1.25)
    store.finish_study(result("a", [changed], best=changed.measurement))
    loaded = store.load_study("a")
    assert [each.gain for each in loaded.trials] == [None, 1.25, None]
    assert loaded.best == changed.measurement


def test_an_interrupted_study_can_be_continued_and_finished_again(store, create):
    create("a")
    first = result("a", [trial(0, measurement=measurement(9.0))], interrupted="Ctrl-C")
    store.finish_study(first)
    second = result(
        "a", [trial(0), trial(1, measurement=measurement(7.0))], best=measurement(6.0), wall_s=60.0
    )
    store.finish_study(second)
    assert store.load_study("a") == second
    assert count(store, "measurement") == 3, "a measurement that nothing refers to is left"


def test_a_baseline_that_is_a_trials_is_stored_once(store, create):
    create("a")
    measured = measurement()
    store.finish_study(result("a", [trial(0, measurement=measured)], baseline=measured))
    assert count(store, "measurement") == 1


def test_studies_share_the_fingerprint_of_their_environment(store, create):
    create("a")
    create("b")
    assert count(store, "environment") == 1


def test_record_of_a_running_study(store, create):
    create("a")
    record = store.study_record("a")
    assert (record.script, record.args, record.level) == (
        "train.py",
        ("--epochs", "1"),
        Level.BALANCED,
    )
    assert record.environment == ENVIRONMENT
    assert record.ended is None and record.interrupted == ""


def test_a_name_is_given_once(create):
    create("a")
    with pytest.raises(UsageError, match="There is a study a already"):
        create("a")


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "x" * 101, "\udce9"])
def test_a_name_that_cannot_be_printed_is_refused(create, name):
    with pytest.raises(UsageError, match="cannot name a study"):
        create(name)


def test_a_study_of_a_module_is_named_as_one_of_its_file(store):
    name = store.create_study(
        None, "package.train", (), ENVIRONMENT, Level.BALANCED, Objective.THROUGHPUT, is_module=True
    )
    assert name == "train-1"


@pytest.mark.parametrize(
    ("script", "existing", "expected"),
    [
        ("/home/me/train.py", [], "train-1"),
        ("train.py", ["train-1", "train-9", "train-old", "train_x-12", "trainer-40"], "train-10"),
        ("train model (v2).py", ["train-1"], "train-model-v2-1"),
        ("train.v2.py", [], "train.v2-1"),
        ("/tmp/.py", [], "py-1"),
        ("学習.py", [], "study-1"),
        ("Ünï.py", [], "Uni-1"),
    ],
)
def test_new_names_are_readable_and_numbered(store, create, script, existing, expected):
    for name in existing:
        create(name)
    assert create(None, script) == expected


def test_unknown_study_names_the_newest(store, create):
    with pytest.raises(UsageError, match="no study 'x': none is stored yet"):
        store.load_study("x")
    for number in range(7):
        create(f"s{number}")
    for ask in (
        store.load_study,
        store.trials,
        store.study_record,
        lambda name: store.add_trial(name, trial(0)),
        lambda name: store.finish_study(result(name)),
    ):
        with pytest.raises(UsageError, match="the newest are s6, s5, s4, s3, s2"):
            ask("x")


def test_a_study_that_runs_has_no_result(store, create):
    create("a")
    with pytest.raises(UsageError, match=r"no result yet.*--resume"):
        store.load_study("a")


def test_latest_and_names(store, create):
    create("old")
    create("new", "infer.py")
    assert store.latest_finished() is None
    store.finish_study(result("old"))
    assert store.study_names() == ["new", "old"]
    assert store.latest_finished() == "old"
    store.finish_study(result("new"))
    assert store.latest_finished() == "new"


@pytest.mark.parametrize(
    ("ending", "found"), [(None, True), ({"interrupted": "Ctrl-C"}, True), ({}, False)]
)
def test_a_killed_or_interrupted_study_is_found_again(store, create, ending, found):
    create("a")
    create("other", args=("--epochs", "2"))
    if ending is not None:
        store.finish_study(result("a", **ending))
    record = store.load_unfinished(
        "train.py", ["--epochs", "1"], Level.BALANCED, Objective.THROUGHPUT
    )
    assert (record.name if record else None) == ("a" if found else None)
    assert store.load_unfinished("train.py", [], Level.BALANCED, Objective.THROUGHPUT) is None


def test_a_verification_is_no_search_that_could_be_continued(store):
    asked = ("train.py", [], Level.BALANCED, Objective.THROUGHPUT)
    store.create_study("a", *asked[:2], ENVIRONMENT, *asked[2:])
    store.create_study("b", *asked[:2], ENVIRONMENT, *asked[2:], verifies="/x/train.plan.toml")
    assert store.load_unfinished(*asked).name == "a"
    assert [each.verifies for each in store.study_records()] == ["/x/train.plan.toml", None]


def test_one_process_at_a_time_works_on_a_study(store):
    refused = pytest.raises(UsageError, match=r"Study a is being tuned by process \d+")
    with store.lock_study("a"), store.lock_study("b"), open_store(store.path) as other, refused:
        other.lock_study("a").__enter__()
    with store.lock_study("a"):
        pass
    assert list((store.path.parent / "locks").iterdir()) == []


@pytest.mark.parametrize("first", ["ours", "optunas"])
def test_optunas_tables_live_beside_ours(tmp_path, first):
    import optuna

    path = tmp_path / "odd {name} 100%.db"
    if first == "optunas":
        url = f"sqlite:///{path.as_posix()}".replace("{name}", "{{name}}")
        optuna.storages.RDBStorage(url).engine.dispose()
    with open_store(path) as store:
        study = optuna.create_study(study_name="a", storage=store.optuna_storage)
        store.create_study("a", "t.py", [], ENVIRONMENT, Level.BALANCED, Objective.MEMORY)
        study.optimize(lambda t: t.suggest_int("num_workers", 0, 8), n_trials=2)
        store.add_trial("a", trial(0))
    with open_store(path) as store:
        again = optuna.load_study(study_name="a", storage=store.optuna_storage)
        assert len(again.trials) == 2
        assert len(store.trials("a")) == 1
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_two_studies_with_optuna_side_by_side(store):
    import optuna

    together = Barrier(2, timeout=60)

    def tune(name):
        with open_store(store.path) as own:
            together.wait()  # both find no table of Optuna's
            study = optuna.create_study(study_name=name, storage=own.optuna_storage)
            own.create_study(name, "t.py", [], ENVIRONMENT, Level.BALANCED, Objective.MEMORY)
            for number in range(10):
                asked = study.ask()
                asked.suggest_int("num_workers", 0, 8)
                own.add_trial(name, trial(number, measurement=measurement()))
                study.tell(asked, 1.0)

    with ThreadPoolExecutor() as pool:
        list(pool.map(tune, ["a", "b"]))
    assert [len(store.trials(name)) for name in ("a", "b")] == [10, 10]


def test_optunas_failures_are_explained(store):
    import optuna

    study = optuna.create_study(storage=store.optuna_storage)
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("DROP TABLE trial_values")
    with pytest.raises(StoreError, match="cannot be used: no such table"), store.recording():
        study.tell(study.ask(), 1.0)


def test_importing_the_store_loads_nothing_heavier_than_sqlalchemy():
    probe = "import gpuadvisor.storage.database, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert not {"optuna", "pandas", "numpy", "alembic", "torch"} & set(run.stdout.split())
    light = "import gpuadvisor.storage.home, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", light], capture_output=True, text=True, check=True)
    assert "sqlalchemy" not in run.stdout.split()
