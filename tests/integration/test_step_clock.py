"""What a step is, in scripts of every kind, none of which knows of gpuadvisor."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import pytest

from gpuadvisor.collectors.script.child.trace import LOSSES
from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.domain.study import TrialState
from tests.integration import runs

pytest.importorskip("torch")


@dataclass(frozen=True)
class Case:
    """What is expected of a script that ends by itself."""

    line: str
    marker: str
    samples: float | None
    source: str | None
    facts: dict[str, Any] = field(default_factory=dict)
    """Fields of `ScriptFacts` that differ from those of a plain training script."""
    missed: int = 0
    """Own steps before gpuadvisor could know what a step is."""
    steady: bool = True
    """Whether a step always takes about as long."""
    slow: bool = False
    """Whether this is another way to do what a case beside it does, or a rare one."""


def loaded(samples: float) -> tuple[float, str]:
    return samples, "dataloader"


def given(samples: float) -> tuple[float, str]:
    return samples, "root_input"


WITHOUT_OPTIMIZER = {"optimizers": ()}
INFERENCE = {"training": False, "optimizers": (), "roots": ("Sequential", "Sequential")}
COMPILED = {"compiles_itself": True}

CASES = [
    Case(
        "gan.py",
        "optimizer",
        *loaded(16),
        {"optimizers": ("Adam", "Adam"), "roots": ("Linear", "Sequential")},
    ),
    Case("manual_sgd.py", "backward", *given(8), WITHOUT_OPTIMIZER),
    Case("few.py", "backward", *given(8), WITHOUT_OPTIMIZER),
    Case("recurrent.py", "backward", *given(4), {"roots": ("Cell",), **WITHOUT_OPTIMIZER}),
    Case("accumulation.py", "optimizer", *loaded(16), {"optimizers": ("AdamW",)}),
    Case("lbfgs.py", "optimizer", None, "root_input", {"optimizers": ("LBFGS",)}, slow=True),
    Case("scaler.py", "optimizer", *given(8), {"scales_itself": True, "autocasts_itself": True}),
    Case("compiled.py model", "optimizer", *loaded(16), COMPILED),
    Case("compiled.py module", "optimizer", *loaded(16), COMPILED, slow=True),
    Case("compiled.py step", "optimizer", *loaded(16), {**COMPILED, "roots": ()}, slow=True),
    Case("evaluation.py", "backward", *loaded(16), WITHOUT_OPTIMIZER),
    Case(
        "graphs.py",
        "backward",
        *loaded(8),
        {"varying_shapes": True, "roots": ("Encoder",), **WITHOUT_OPTIMIZER},
    ),
    Case("workers.py", "backward", *loaded(16), WITHOUT_OPTIMIZER, steady=False),
    Case("children.py spawn", "backward", *given(8), WITHOUT_OPTIMIZER, slow=True),
    Case("children.py fork", "backward", *given(8), WITHOUT_OPTIMIZER, slow=True),
    Case("-m pkg.train --steps 40", "backward", *given(8), WITHOUT_OPTIMIZER),
    Case(
        "checkpoints.py", "backward", None, "root_input", {"roots": ("Net",), **WITHOUT_OPTIMIZER}
    ),
    Case("rollouts.py", "backward", *given(20), WITHOUT_OPTIMIZER, slow=True),
    Case("explicit.py", "explicit", *given(24), WITHOUT_OPTIMIZER),
    Case("stream.py", "backward", *loaded(10), WITHOUT_OPTIMIZER),
    Case("folds.py", "optimizer", *loaded(16), {"optimizers": ("SGD",) * 4}, slow=True),
    Case("inference.py inference_mode", "forward", *given(32), INFERENCE, missed=8),
    Case(
        "inference.py compiled",
        "forward",
        *given(32),
        {**INFERENCE, **COMPILED},
        missed=8,
        slow=True,
    ),
    Case(
        "inference.py scripted",
        "forward",
        *given(32),
        {**INFERENCE, "roots": ("Sequential", "RecursiveScriptModule")},
        missed=8,
        slow=True,
    ),
    Case(
        "inference.py function",
        "forward",
        None,
        None,
        {**INFERENCE, **COMPILED, "roots": ()},
        slow=True,
    ),
    Case("geometric.py", "optimizer", *loaded(8), {"varying_shapes": True, "roots": ("GCNConv",)}),
    Case(
        "hugging_face.py",
        "optimizer",
        *loaded(8),
        {"optimizers": ("AdamW",), "roots": ("BertForSequenceClassification",)},
    ),
    Case("lightning_trainer.py", "optimizer", *loaded(16)),
]

LIBRARIES = {
    "geometric.py": "torch_geometric",
    "hugging_face.py": "transformers",
    "lightning_trainer.py": "lightning",
}


def parameters(cases: list[Case]) -> list[Any]:
    """Mark the slow cases, and those whose library is not installed."""
    found = []
    for case in cases:
        library = LIBRARIES.get(case.line)
        missing = library is not None and find_spec(library) is None
        marks = [pytest.mark.skipif(missing, reason=f"needs {library}")] if library else []
        marks += [pytest.mark.slow] if case.slow else []
        found.append(pytest.param(case.line, case, marks=marks, id=case.line))
    return found


@pytest.fixture(scope="module")
def torch_imported():
    """Any optimizer imports TorchDynamo, which takes half as long as torch itself."""
    with runs.torch_imported("_dynamo") as template:
        yield template


@pytest.fixture(scope="module")
def outcomes(torch_imported):
    """The outcome of each run, by the command line under `tests/scripts`."""

    class Outcomes(dict[str, RunOutcome]):
        def __missing__(self, line: str) -> RunOutcome:
            return self.setdefault(line, runs.run_line(line, template=torch_imported))

    return Outcomes()


@pytest.mark.parametrize(("line", "case"), parameters(CASES))
def test_steps_are_found(outcomes, torch_imported, line, case):
    outcome = outcomes[line]
    assert (outcome.state, outcome.reason) == (TrialState.COMPLETE, ""), outcome.output
    assert outcome.forked == (torch_imported is not None and not line.startswith("-m"))
    own, measured = runs.own_clock(outcome), outcome.measurement
    assert measured.marker == case.marker
    assert outcome.short
    # A compiled function is called once more, to compile it, by the time it is known.
    assert own.steps - 1 <= outcome.steps + case.missed <= own.steps + 1
    if not case.missed and case.line != "inference.py function":
        assert outcome.steps == own.steps
    if case.steady:
        assert 0.1 < measured.mean_step_ms / own.step_ms < 10  # other windows, other neighbours
    if case.samples is not None:
        assert measured.samples_per_step == case.samples
    assert measured.samples_source == case.source


@pytest.mark.parametrize(("line", "case"), parameters(CASES))
def test_the_script_is_described(outcomes, line, case):
    facts = outcomes[line].measurement.facts
    expected = {
        "training": True,
        "device": "cpu",
        "optimizers": ("SGD",),
        "roots": ("Sequential",),
        "compiles_itself": False,
        "autocasts_itself": False,
        "scales_itself": False,
        "varying_shapes": False,
        "cpu_threads": 1,  # of `$OMP_NUM_THREADS`
        **case.facts,
    }
    if case.line == "folds.py":
        expected["roots"] = facts.roots  # as many as were seen before looking ended
    assert {name: getattr(facts, name) for name in expected} == expected


def test_time_of_evaluations_does_not_count(outcomes):
    outcome = outcomes["evaluation.py"]
    late = [each for each in outcome.measurement.step_ms if each > 150]
    assert len(late) < 3  # six evaluations take 200 ms each; a busy machine may hold up a step


def test_loaders_are_described(outcomes):
    loaders = outcomes["workers.py"].measurement.facts.loaders
    assert [loader.num_workers for loader in loaders] == [1, 1]
    assert [loader.batch_size for loader in loaders] == [16, 16]
    assert outcomes["stream.py"].measurement.facts.loaders[0].iterable


def test_the_script_compiles_as_much_as_it_would_alone(outcomes):
    assert outcomes["compiled.py model"].measurement.compiles == 2  # a frame, and its graph


@pytest.mark.slow
def test_what_dynamo_does_not_compile_is_not_made_to(outcomes):
    # The module's own forward is torch's.
    assert outcomes["compiled.py module"].measurement.compiles == 0


def test_losses_and_outputs_are_kept(outcomes):
    trained = outcomes["accumulation.py"].measurement.trace
    assert len(trained.losses) == LOSSES
    assert trained.last_loss is not None
    outputs = outcomes["inference.py inference_mode"].measurement.trace.outputs
    assert outputs[-1].shape == (32, 2)


@pytest.mark.slow
def test_losses_of_a_compiled_step_are_kept(outcomes):
    assert len(outcomes["compiled.py step"].measurement.trace.losses) == LOSSES


def test_a_measured_script_is_ended_early(torch_imported):
    outcome = runs.run_line("actor.py", runs.QUICK, torch_imported)
    assert outcome.state is TrialState.COMPLETE
    assert not outcome.short
    assert outcome.steps < 40
    # A process beside it, which evaluates all the time, is neither measured nor ended.
    assert outcome.measurement.marker == "backward"
