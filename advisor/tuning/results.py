"""From what the phases found to the study's result and its plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from gpuadvisor.collectors.script.request import Command, RunOutcome
from gpuadvisor.domain.knobs import Contribution, Settings
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Objective, Plan, StudyResult, Trial, TrialState
from gpuadvisor.errors import ScriptError, UsageError
from gpuadvisor.tuners.proof import Proof, is_faster
from gpuadvisor.tuning.fingerprints import environment_fingerprint
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.plans import write_plan
from gpuadvisor.tuning.toml_table import MAX_BYTES


def measured(outcome: RunOutcome, command: Command) -> Measurement:
    """Return the baseline's measurement; ScriptError with what to do about its absence."""
    if outcome.measurement is not None:
        return outcome.measurement
    where = f" at {outcome.place}" if outcome.place else ""
    raise ScriptError(
        f"{command.script} cannot be measured: {outcome.reason}{where}; {_advice(outcome)}",
        outcome.output,
    )


def _advice(outcome: RunOutcome) -> str:
    match outcome.state:
        case TrialState.HUNG if outcome.steps == 0:
            return "raise --timeout if it needs longer to start"
        case TrialState.HUNG:
            return "give it less to do between two steps"
        case TrialState.UNSUPPORTED if outcome.steps:
            return "give it more steps"
        case TrialState.UNSUPPORTED:
            return "if it trains elsewhere, name that script"
        case TrialState.OUT_OF_MEMORY:
            return "it has to run by itself before it can be tuned: make its batch smaller"
        case _:
            return "it has to run by itself before it can be tuned; its own arguments go after --"


def proven(
    result: StudyResult,
    settings: Settings,
    contributions: tuple[Contribution, ...],
    proof: Proof,
) -> StudyResult:
    """Return the result with what the proof says of the settings, faster or not."""
    objective = result.objective
    best = typical([t for t in proof.trials if t.settings], objective)
    plain = typical([t for t in proof.trials if not t.settings], objective)
    result = replace(
        result,
        settings=settings,
        speedup=proof.speedup,
        best=best.measurement if best else None,
        equivalence=best.equivalence if best else None,
        baseline=plain.measurement if plain and plain.measurement else result.baseline,
    )
    if proof.speedup is None or not is_faster(proof.speedup):
        return result
    if len(settings) == 1:
        whole = proof.speedup
        contributions = tuple(
            Contribution(name, value, whole.ratio, whole.ci99_low, whole.ci99_high)
            for name, value in settings.items()
        )
    return replace(result, verdict="faster", contributions=contributions)


def typical(trials: Sequence[Trial], objective: Objective) -> Trial | None:
    """Return the run of median cost, so that what is shown fits the ratio; None without any."""
    costs = [
        (cost, place)
        for place, trial in enumerate(trials)
        if trial.state is TrialState.COMPLETE
        and trial.measurement is not None
        and (cost := objective.cost(trial.measurement)) is not None
    ]
    return trials[sorted(costs)[(len(costs) - 1) // 2][1]] if costs else None


def plan_path(options: TuneOptions) -> Path:
    """Return where the plan goes; UsageError if it could not be written there in the end."""
    command = options.command
    script = Path(command.script)
    stem = command.script.rpartition(".")[2] if command.is_module else script.stem
    path = options.plan or Path(f"{stem or 'script'}.plan.toml")
    problem = _unwritable(path) or _precious(path, script)
    if problem is not None:
        raise UsageError(
            f"the plan could not be written to {path}: {problem}; choose another place with --plan"
        )
    return path


def _precious(path: Path, script: Path) -> str | None:
    """Return why a file that is there is not to be replaced by a plan, or None."""
    if not path.exists():
        return None
    if script.exists() and path.samefile(script):
        return "it is the script itself"
    if not path.is_file():
        return "it is no ordinary file"
    if path.suffix == ".toml":
        return None
    with path.open("rb") as file:
        return None if b"[plan]" in file.read(MAX_BYTES) else "a file that is no plan is there"


def _unwritable(path: Path) -> str | None:
    import os

    if path.is_dir():
        return "it is a folder"
    folder = path.absolute().parent
    if not folder.is_dir():
        return f"there is no folder {folder}"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"the folder {folder} is read-only"


def keep_plan(result: StudyResult, path: Path) -> StudyResult:
    """Write the plan and return the result that names it; UsageError where it cannot be."""
    plan = Plan(
        script=result.script,
        args=result.args,
        settings=result.settings,
        speedup=result.speedup,
        level=result.level,
        objective=result.objective,
        contributions=result.contributions,
        equivalence=result.equivalence,
        environment=environment_fingerprint(result.environment),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        is_module=result.is_module,
    )
    write_plan(plan, path)
    return replace(result, plan=str(path))
