"""Studies for the tests of reports: real domain objects with plausible figures."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

from gpuadvisor.domain.device import Device, Environment
from gpuadvisor.domain.knobs import Contribution, Level, Snippet
from gpuadvisor.domain.loader_supply import LoaderSupply, Supplied
from gpuadvisor.domain.measurement import Measurement, StepWindow
from gpuadvisor.domain.screening import Ratio, Screened, ScreenedAs
from gpuadvisor.domain.study import (
    Aspect,
    Dropped,
    Equivalence,
    Expectation,
    Forecast,
    Forking,
    Objective,
    Problem,
    Rehearsal,
    Speedup,
    StudyResult,
    Trial,
    TrialState,
    Verdict,
)
from gpuadvisor.storage.database import Store

GIB = 2**30

H100 = Device(
    kind="cuda",
    index=0,
    name="NVIDIA H100 80GB HBM3",
    uuid="GPU-5c3a1d5e-0f57-4c6b-9a39-2f1f6f0c8e11",
    memory_bytes=79 * GIB,
    compute_capability=(9, 0),
    cores=16,
)
CPU = Device(kind="cpu", index=0, name="AMD EPYC 9554", memory_bytes=64 * GIB, cores=8)


def environment(device: Device = H100, **changes: Any) -> Environment:
    known = Environment(
        device=device,
        python="3.12.3",
        torch="2.7.1+cu126",
        cuda="12.6",
        cudnn="9.5.1",
        driver="570.86.15",
        platform="Linux 6.8.0 x86_64",
        gpuadvisor="0.1.0",
        sm_clock_mhz=1755,
        sm_clock_max_mhz=1980,
        power_limit_w=700.0,
        git_commit="4be1c1f0f3f14f36a51f6f1f5b0a3d8b9c0d1e2f",
        git_dirty=False,
    )
    return replace(known, **changes)


def measurement(
    step_ms: float = 78.7,
    samples: float | None = 256,
    energy_j: float | None = 31.0,
    steps: int = 240,
    **changes: Any,
) -> Measurement:
    """A run whose steps take `step_ms` with 2 % of noise and a few stalls."""
    return replace(_measured(step_ms, samples, energy_j, steps), **changes)


@cache
def _measured(
    step_ms: float, samples: float | None, energy_j: float | None, steps: int
) -> Measurement:
    noise = random.Random(round(step_ms * 1000))
    times = [step_ms * noise.gauss(1, 0.02) for _ in range(steps)]
    for place in range(0, steps, 40):
        times[place] *= 1.25
    window = StepWindow(
        steps=steps,
        seconds=sum(times) / 1e3,
        samples=(samples or 0) * steps,
        energy_j=None if energy_j is None else energy_j * steps,
    )
    return Measurement(
        marker="optimizer",
        step_ms=tuple(times),
        windows=(window,),
        warmup_steps=10,
        samples_source="dataloader" if samples else None,
        peak_memory_bytes=round(18.4 * GIB),
        reserved_memory_bytes=20 * GIB,
        startup_s=6.5,
        wall_s=31.0,
    )


def _trial(number: int, gain: float | None, settings: dict[str, Any], **changes: Any) -> Trial:
    run = None if gain is None else measurement(78.7 / gain)
    first = Trial(number, settings, "search", TrialState.COMPLETE, gain=gain, measurement=run)
    return replace(first, wall_s=31.0, **changes)


@cache
def trials() -> tuple[Trial, ...]:
    """A baseline, a search with every state, an ablation and a proof."""
    workers = {"num_workers": 8}
    tf32 = {**workers, "tf32": True}
    fused = {**tf32, "fused_optimizer": True}
    bf16 = {**fused, "bf16_autocast": True}
    ended: list[tuple[dict[str, Any], TrialState, str]] = [
        ({**bf16, "cuda_graphs": True}, TrialState.CRASHED, "signal 11 (segmentation fault)"),
        (
            {**bf16, "arg:batch-size": 1024},
            TrialState.OUT_OF_MEMORY,
            "tried to allocate 12.0 GiB, 3.1 GiB were free",
        ),
        (
            {**bf16, "fp16_autocast": True},
            TrialState.WRONG,
            "the loss of step 7 is NaN",
        ),
        ({**bf16, "compile": "max-autotune"}, TrialState.HUNG, "no step within 300 s"),
        ({**bf16, "sdpa_backend": "cudnn"}, TrialState.NO_EFFECT, "the script has no attention"),
        ({**bf16, "fp8": True}, TrialState.UNSUPPORTED, "needs `torchao`, which is not installed"),
    ]
    searched: list[tuple[float, dict[str, Any]]] = [
        (1.0, {}),
        (1.003, {}),
        (1.05, {"num_workers": 4}),
        (1.12, workers),
        (1.11, {"num_workers": 16}),
        (1.121, {**workers, "pin_memory": True}),
        (1.19, tf32),
        (1.21, fused),
        (1.41, bf16),
        (1.36, {**bf16, "channels_last": True}),
    ]
    made = [
        _trial(place, gain, settings, phase="search" if settings else "baseline")
        for place, (gain, settings) in enumerate(searched)
    ]
    slow = {**bf16, "cudnn_benchmark": True}
    reason = "at 30 steps 0.71x of the best so far"
    made.append(_trial(len(made), 0.93, slow, state=TrialState.PRUNED, reason=reason))
    for settings, state, reason in ended:
        made.append(_trial(len(made), None, settings, state=state, reason=reason))
    for knob in bf16:
        without = {name: value for name, value in bf16.items() if name != knob}
        made.append(_trial(len(made), 1.3, without, phase="ablation"))
    for gain in (1.42, 0.998, 1.002, 1.43, 1.415, 1.0):
        settings = bf16 if gain > 1.1 else {}
        made.append(_trial(len(made), gain, settings, phase="proof"))
    return tuple(made)


FROZEN = Problem(
    Aspect.DATASET_STATE,
    "`dataset.level` was 1 in the second epoch and 0 under the plan",
    ("persistent_workers",),
)


def rehearsal(**changes: Any) -> Rehearsal:
    """A rehearsal that covered all but the files, and found nothing."""
    built = Rehearsal(
        settings={"num_workers": 8, "tf32": True, "fused_optimizer": True, "bf16_autocast": True},
        covered=tuple(aspect for aspect in Aspect if aspect is not Aspect.FILES),
        not_covered={
            Aspect.FILES: "what is in best.pt depends on random numbers: only sizes were compared"
        },
        epochs=2,
        samples=1280,
        equivalence=Equivalence(
            "equivalent", "mean relative difference of 10 losses", 0.0021, 0.01
        ),
        forecast=Forecast(11400.0, 38520.0, 90, 1.41, 12.5, 540),
        wall_s=38.0,
    )
    return replace(built, **changes)


def study(**changes: Any) -> StudyResult:
    """A study that proved a gain; `changes` replace fields of the result."""
    built = StudyResult(
        study="train-20261002-1412",
        script="train.py",
        args=("--epochs", "3"),
        environment=environment(),
        level=Level.BALANCED,
        objective=Objective.THROUGHPUT,
        verdict=Verdict.FASTER,
        baseline=measurement(78.7),
        best=measurement(55.4, energy_j=25.1, peak_memory_bytes=round(12.3 * GIB)),
        settings={"num_workers": 8, "tf32": True, "fused_optimizer": True, "bf16_autocast": True},
        speedup=Speedup(1.42, 1.39, 1.45, 8),
        contributions=(
            Contribution("num_workers", 8, 1.12, 1.10, 1.14),
            Contribution("tf32", True, 1.06, 1.04, 1.08),
            Contribution("fused_optimizer", True, 1.02),
            Contribution("bf16_autocast", True, 1.17, 1.14, 1.20),
        ),
        equivalence=Equivalence(
            "equivalent", "mean relative difference of 10 losses", 0.0021, 0.01
        ),
        rehearsal=rehearsal(),
        dropped=(Dropped("persistent_workers", True, FROZEN),),
        untried={
            "compile_max_autotune": "compile made the script 1.21x slower",
            "num_workers=32": "2 of its values were tried in vain",
        },
        expectations=(
            Expectation(
                "input_bound",
                "warning",
                "The GPU is idle for 17% of the run because the script waits for its next batch",
                8.4,
                16.8,
                ("num_workers", "pin_memory"),
                10.7,
                8.9,
                12.1,
                {"num_workers": 8},
            ),
            Expectation(
                "unfused_attention",
                "notice",
                "Attention runs as softmax between two matrix products, 6% of the run",
                2.0,
                5.0,
                ("sdpa_backend",),
                why="sdpa_backend: the script has no attention",
            ),
        ),
        screened=(
            Screened("tf32", True, ScreenedAs.KEPT, Ratio(1.06, 1.05, 1.07, 4), {}, 9.2),
            Screened("cuda_graphs", True, ScreenedAs.FAILED, seconds=3.1, why="signal 11"),
            Screened(
                "cudnn_benchmark",
                True,
                ScreenedAs.WORTHLESS,
                Ratio(0.998, 0.991, 1.005, 6),
                {"tf32": True},
                14.0,
            ),
        ),
        supply=LoaderSupply(
            140.0,
            98.0,
            (
                Supplied({"num_workers": 4}, 110.0, 108.0, 112.1, 22, 110.0, 3.9),
                Supplied({"num_workers": 8}, 61.0, 59.9, 62.2, 32, 98.0, 2.1),
                Supplied({"num_workers": 16}, seconds=2.0, failed="OSError: no space left"),
            ),
            (8,),
            "16 were no faster than fewer",
            {"num_workers": 8},
        ),
        trials=trials(),
        forking=Forking(9, 41.5),
        no_effect={"sdpa_backend": "the script has no attention"},
        notes=("The SM clock was 1,755 of 1,980 MHz: `nvidia-smi -q -d CLOCK` says why.",),
        plan="train.plan.toml",
        started="2026-10-02T14:12:07+00:00",
        wall_s=1122.0,
    )
    return replace(built, **changes)


NOTHING: dict[str, Any] = {
    "best": None,
    "settings": {},
    "speedup": None,
    "screened": (),
    "supply": None,
    "contributions": (),
    "equivalence": None,
    "rehearsal": None,
    "dropped": (),
    "untried": {},
    "plan": None,
}
"""Fields of a study that found nothing."""


def study_without_gain(**changes: Any) -> StudyResult:
    """A study that showed that the best of its settings is worth nothing."""
    shown: dict[str, Any] = {
        "verdict": Verdict.NO_GAIN,
        "best": measurement(78.9),
        "settings": {"num_workers": 8},
        "speedup": Speedup(0.998, 0.993, 1.003, 6),
    }
    return study(**{**NOTHING, **shown, **changes})


def unverified_study(**changes: Any) -> StudyResult:
    """A study whose gain could only be rehearsed in part."""
    partly = rehearsal(
        covered=(Aspect.BATCHES, Aspect.RESULTS),
        not_covered={
            Aspect.SECOND_EPOCH: "the script makes one pass over its data",
            Aspect.END: "it did not end within 60 s",
        },
        epochs=1,
        samples=640,
        forecast=None,
    )
    shown: dict[str, Any] = {
        "verdict": Verdict.FASTER_UNVERIFIED,
        "rehearsal": partly,
        "plan": None,
        "dropped": (),
    }
    return study(**{**shown, **changes})


def inconclusive_study(**changes: Any) -> StudyResult:
    """A study whose interval has room for a gain and for none."""
    shown: dict[str, Any] = {
        "verdict": Verdict.INCONCLUSIVE,
        "best": measurement(76.0),
        "settings": {"num_workers": 8},
        "speedup": Speedup(1.03, 0.97, 1.09, 8),
        "needed_s": 1500.0,
    }
    return study(**{**NOTHING, **shown, **changes})


def untried_study(**changes: Any) -> StudyResult:
    """A study whose budget had no room for a setting."""
    shown: dict[str, Any] = {
        "verdict": Verdict.NOT_TRIED,
        "untried": {"tf32": NO_ROOM, "compile": NO_ROOM},
        "trials": trials()[:2],
        "needed_s": 420.0,
        "wall_s": 45.0,
    }
    return study(**{**NOTHING, **shown, **changes})


NO_ROOM = "the budget had no room for it"
STUDIES = {
    Verdict.FASTER: study,
    Verdict.FASTER_UNVERIFIED: unverified_study,
    Verdict.NO_GAIN: study_without_gain,
    Verdict.INCONCLUSIVE: inconclusive_study,
    Verdict.NOT_TRIED: untried_study,
}
"""A study of each verdict, with fields to change."""


def snippets() -> tuple[Snippet, ...]:
    """Lines for two of the knobs."""
    return (
        Snippet("num_workers", "where the DataLoader is built", "DataLoader(..., num_workers=8)"),
        Snippet(
            "bf16_autocast",
            "around the forward pass",
            'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = model(batch)',
        ),
    )


def create(store: Store, result: StudyResult, folder: str = "") -> None:
    """Store that the study begins whose result this is."""
    store.create_study(
        result.study, result.script, result.args, result.environment, result.level,
        result.objective, result.started, folder, result.is_module, result.verifies,
    )  # fmt: skip
