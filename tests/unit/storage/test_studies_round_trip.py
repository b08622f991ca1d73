"""Whatever the domain can say, the store gives back: NaN, infinities and odd bytes included."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from itertools import count
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.device import Device, Environment
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.measurement import Measurement, StepWindow, Trace
from gpuadvisor.domain.study import Equivalence, Objective, StudyResult, Trial, TrialState
from gpuadvisor.storage import codec
from gpuadvisor.storage.database import open_store
from gpuadvisor.tuners.equivalence import is_broken
from tests.studies import create

BITS = 2**63
WORDS = st.text(max_size=8) | st.sampled_from(["caf\udce9.py", "\x1b[1m", "nan", "\0", "学習"])
SCALARS = {
    str: WORDS,
    int: st.integers(-BITS, BITS - 1),
    float: st.floats(),
    bool: st.booleans(),
}
NAMES = count()
ENVIRONMENT = Environment(
    Device("cpu", 0, "cpu"), "3.12.3", "2.8.0", None, None, None, "Linux-6.8-x86_64", "0.1.0"
)


@cache
def anything(kind: Any) -> st.SearchStrategy[Any]:
    """Return every value of a type, all fields of a dataclass included."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return st.builds(kind, **{each.name: anything(hints[each.name]) for each in fields(kind)})
    if get_origin(kind) is tuple:
        items = get_args(kind)
        if items[-1] is Ellipsis:
            return st.lists(anything(items[0]), max_size=2).map(tuple)
        return st.tuples(*map(anything, items))
    if get_origin(kind) in (Mapping, dict):
        return st.dictionaries(*map(anything, get_args(kind)), max_size=2)
    if kind in SCALARS:
        return SCALARS[kind]
    if get_args(kind):
        return st.one_of(*map(anything, get_args(kind)))
    return st.from_type(kind)


@st.composite
def study_results(draw: st.DrawFn) -> StudyResult:
    trials = draw(st.lists(anything(Trial), max_size=2, unique_by=lambda trial: trial.number))
    drawn = draw(anything(StudyResult))
    measured = [trial.measurement for trial in trials if trial.measurement]
    best = draw(st.sampled_from(measured)) if measured else drawn.best
    return replace(
        drawn,
        study=f"study {next(NAMES)}",
        best=best,
        trials=tuple(sorted(trials, key=lambda trial: trial.number)),
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with open_store(tmp_path_factory.mktemp("store") / "gpuadvisor.db") as opened:
        yield opened


@settings(
    max_examples=8,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(result=study_results(), early=st.booleans())
def test_a_study_comes_back_as_it_was(store, result, early):
    create(store, result)
    for trial in result.trials if early else ():
        store.add_trial(result.study, trial)
    store.finish_study(result)
    # By text, as a NaN is not equal to itself. It also tells 1 from 1.0 and True.
    assert repr(store.load_study(result.study)) == repr(result)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_trial_whose_loss_is_no_number_is_still_wrong(store, broken):
    baseline, trace = Trace((1.0, 0.9)), Trace((1.0, broken), last_loss=broken)
    window = StepWindow(2, 0.02, 32.0, 0.0, broken)
    measured = Measurement("optimizer", (10.0, broken), (window,), 1, None, 0, 0, 1.0, 2.0, trace)
    equivalence = Equivalence("wrong", "NaN or infinity in the losses", broken, 0.01)
    trial = Trial(7, {"tf32": True}, "search", TrialState.WRONG, "", measured, equivalence)
    name = f"study {next(NAMES)}"
    store.create_study(name, "train.py", [], ENVIRONMENT, Level.BALANCED, Objective.THROUGHPUT)
    store.add_trial(name, trial)
    (found,) = store.trials(name)
    assert repr(found) == repr(trial)  # by text, as a NaN is not equal to itself
    assert found.state is TrialState.WRONG
    assert is_broken(baseline, found.measurement.trace)


def test_members_of_enumerations_come_back_as_such():
    text = codec.dumps({"a": Level.BALANCED, "b": Level.CONSERVATIVE})
    assert codec.loads(Mapping[str, Level], text) == {"a": Level.BALANCED, "b": Level.CONSERVATIVE}
    assert type(codec.loads(Mapping[str, Level], text)["a"]) is Level


@pytest.mark.parametrize("text", ['{"status": 3, "metric": ""}', "[]", '{"status": "wrong"}'])
def test_a_structure_that_is_something_else_is_refused(text):
    with pytest.raises(ValueError, match=r"Expected|missing"):
        codec.loads(Equivalence, text)


def test_a_structure_of_another_version_is_read():
    text = '{"status": "wrong", "metric": "loss", "of_a_newer_version": 1}'
    assert codec.loads(Equivalence, text) == Equivalence("wrong", "loss")
