"""What rehearsals find in scripts whose right answer was written down first.

    python benchmarks/rehearsal_table.py [--cases NAME,...] [--whole | --studies]

The scripts are those of `tests/rehearsal_cases`: traps, in which a setting is faster at first and
spoils the data, the results, later epochs or the end, and healthy ones. Each is copied to an empty
folder. Without `--studies` exactly the settings of the case are rehearsed: a trap is right where a
problem is found, or where so little could be rehearsed that a gain would stay unverified. With it
the whole `gpuadvisor tune --only ...` runs, and no trap's dangerous knob may be called faster. With
`--whole` each script runs to its end, unchanged and with the settings: what the answers stand on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.knobs import Level, Settings
from gpuadvisor.domain.study import Objective, Plan, Rehearsal, Verdict
from gpuadvisor.tuners.rehearsal.comparison import missing
from gpuadvisor.tuning.plans.file import write_plan
from tests.rehearsal_cases.cases import CASES, Case

PATIENCE_S = 900.0
"""Time for a rehearsal: what is found must not depend on how busy the machine is."""
LONGEST_S = 600.0
"""Longest that a whole run may take: one of the traps never ends."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    case: str
    expected: str
    found: str
    covered: str
    seconds: float
    right: bool
    detail: str = ""
    """What went wrong, or the sentences of what was found."""

    def __str__(self) -> str:
        cells = (self.case, self.expected, self.found, self.covered, f"{self.seconds:.0f} s")
        return f"| {' | '.join(cells)} | {'ok' if self.right else 'MISS'} |"


# Rehearsals. --------------------------------------------------------------------------------------


def rehearsed(case: Case, folder: Path) -> Rehearsal:
    """Rehearse the settings of a case in a folder that holds its script."""
    from gpuadvisor.collectors.devices import cpu_device, inventory
    from gpuadvisor.tuners.equivalence import TOLERANCES
    from gpuadvisor.tuners.knobs import load_knobs
    from gpuadvisor.tuning.rehearsal import Rehearser
    from gpuadvisor.tuning.trials.trial_runner import Side

    device = next(iter(inventory().gpus), None) or cpu_device()
    side = Side(command(case, folder), device)
    tolerance = TOLERANCES[Level.BALANCED]
    return Rehearser(side, load_knobs(), tolerance, allowed_s=PATIENCE_S).rehearse(case.settings)


def judged(case: Case, rehearsal: Rehearsal, seconds: float) -> Row:
    """Compare a rehearsal with what was expected of it."""
    found = list(dict.fromkeys(str(problem.aspect) for problem in rehearsal.problems))
    wanted = [str(aspect) for aspect in case.aspects]
    lacks = missing(rehearsal)
    if case.is_trap:
        right = bool(found) or lacks is not None
        wanted_too = "" if set(found) & set(wanted) or not found else ", by another aspect"
        said = ", ".join(found) + wanted_too or ("unverified" if lacks else "nothing")
    else:
        refused = case.refusable and not rehearsal.samples  # the settings changed nothing
        right = not found and (lacks is None or refused)
        said = ", ".join(found) or ("unverified" if lacks else "nothing")
    sentences = [problem.sentence for problem in rehearsal.problems]
    return Row(
        case.name,
        " or ".join(wanted) or "nothing",
        said,
        ", ".join(map(str, rehearsal.covered)) + f"; {rehearsal.samples} samples",
        seconds,
        right,
        "; ".join(sentences + ([lacks] if lacks else [])),
    )


def rehearsal_row(case: Case) -> Row:
    """Rehearse one case in a folder of its own."""
    with scratch(case) as folder:
        started = time.monotonic()
        return judged(case, rehearsed(case, folder), time.monotonic() - started)


# Whole runs. --------------------------------------------------------------------------------------


def whole_row(case: Case) -> Row:
    """Run a case to its end, unchanged and with its settings, as its user would."""
    plain, planned = lived(case, {}), lived(case, case.settings)
    right = plain.status == 0 and (case.is_trap or planned.status == 0)
    return Row(
        case.name,
        "another end, output or time" if case.is_trap else "faster, status 0",
        f"status {plain.status}, then {planned.status}; {plain.seconds / planned.seconds:.2f}x",
        f"{plain.last} / {planned.last}".replace("|", "/"),
        plain.seconds + planned.seconds,
        right and (case.is_trap or not case.gains or planned.seconds < plain.seconds),
    )


@dataclass(frozen=True)
class Run:
    """One whole run of a script."""

    status: int
    seconds: float
    last: str
    """Last line of what it printed, or of its error."""


def lived(case: Case, settings: Settings) -> Run:
    """Run a case's script to its end under settings, in a folder of its own."""
    with scratch(case) as folder:
        line = command(case, folder).line()
        if settings:
            plan = Plan(
                case.target, case.args, settings, None, Level.BALANCED, Objective.THROUGHPUT
            )
            write_plan(replace(plan, is_module=case.is_module), folder / "plan.toml")
            target = ["-m", case.target] if case.is_module else [case.target]
            arguments = ["--", *case.args] if case.args else []
            line = [sys.executable, "-m", "gpuadvisor", "run", "--plan", "plan.toml"]
            line += [*target, *arguments]
        return finished(line, folder)


def finished(line: list[str], folder: Path) -> Run:
    """Run a command to its end, or end it and its workers when it takes too long."""
    started = time.monotonic()
    with subprocess.Popen(
        line,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # workers that hang outlive their parent otherwise
    ) as process:
        try:
            output, complaint = process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, complaint = process.communicate()
    words = (complaint if process.returncode else output).strip().splitlines() or [""]
    return Run(process.returncode, time.monotonic() - started, words[-1][:100])


# Studies. -----------------------------------------------------------------------------------------


def study_row(case: Case, budget: str) -> Row:
    """Run `gpuadvisor tune` on one case in a folder of its own."""
    with scratch(case) as folder:
        started = time.monotonic()
        line = [sys.executable, "-m", "gpuadvisor", "tune", "--json", "--no-profile"]
        line += ["--only", ",".join(case.knobs), "--budget", budget]
        line += ["-m", case.target] if case.is_module else [case.target]
        line += ["--", *case.args] if case.args else []
        told = subprocess.run(line, cwd=folder, capture_output=True, text=True)
        seconds = time.monotonic() - started
    if told.returncode:
        return Row(case.name, "", f"exit {told.returncode}", "", seconds, False, told.stderr[-500:])
    return concluded(case, json.loads(told.stdout), seconds)


def concluded(case: Case, result: dict[str, Any], seconds: float) -> Row:
    """Compare a study's result with what it may conclude."""
    settings = (result["best"] or {}).get("knobs", {})
    faster = result["verdict"] == str(Verdict.FASTER)
    spoiled = faster and bool(set(case.dangerous) & set(settings))
    ratio = (result.get("speedup") or {}).get("ratio")
    found = f"{result['verdict']} {ratio:.2f}x" if ratio else result["verdict"]
    chosen = ", ".join(f"{name}={value}" for name, value in settings.items())
    expected = (
        f"never faster with {', '.join(case.dangerous)}"
        if case.is_trap
        else "faster"
        if case.gains
        else "right"
    )
    right = not spoiled if case.is_trap else faster or not case.gains
    rehearsal = result.get("rehearsal") or {}
    reasons = [f"{aspect}: {why}" for aspect, why in (rehearsal.get("not_covered") or {}).items()]
    reasons += [problem["sentence"] for problem in rehearsal.get("problems", ())]
    reasons += [each for each in (rehearsal.get("doubt"), *result.get("notes", ())) if each]
    if needed_s := result.get("needed_s"):
        reasons.append(f"needs {needed_s:.0f} s more")
    return Row(case.name, expected, found, chosen, seconds, right, "; ".join(map(str, reasons)))


# Both. --------------------------------------------------------------------------------------------


def command(case: Case, folder: Path) -> Command:
    """Return how a case is started in a folder that holds its script."""
    return Command(sys.executable, case.target, case.args, case.is_module, str(folder))


@contextmanager
def scratch(case: Case) -> Iterator[Path]:
    """Give an empty folder with the case's script, or its package, in it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = case.folder / (case.target.partition(".")[0] if case.is_module else case.target)
        if source.is_dir():
            shutil.copytree(source, folder / source.name)
        else:
            shutil.copy(source, folder)
        yield folder


def rows(cases: Iterable[Case], look: Callable[[Case], Row]) -> Iterator[Row]:
    """Yield a row for each case, in order; what fails is a MISS with its reason."""
    for case in cases:
        if case.lacks:
            print(f"| {case.name} | | left out: {', '.join(case.lacks)} is missing | | | |")
            continue
        try:
            yield look(case)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            yield Row(case.name, "", "failed", "", 0.0, False, reason)


def main() -> int:
    """Print a table and what was missed; 1 where anything was."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", help="names, separated by commas; all by default")
    parser.add_argument("--kind", choices=("traps", "healthy"), help="all by default")
    parser.add_argument("--studies", action="store_true", help="studies instead of rehearsals")
    parser.add_argument(
        "--whole", action="store_true", help="whole runs, with and without settings"
    )
    parser.add_argument("--budget", default="2m", help="of each study (default: 2m)")
    parser.add_argument("--verbose", action="store_true", help="say what was found in words")
    options = parser.parse_args()
    names = options.cases.split(",") if options.cases else [case.name for case in CASES]
    if unknown := set(names) - {case.name for case in CASES}:
        parser.error(f"no case {', '.join(sorted(unknown))}")
    wanted = {"traps": {True}, "healthy": {False}}.get(options.kind, {True, False})
    cases = [case for case in CASES if case.name in names and case.is_trap in wanted]
    look, last = rehearsal_row, "covered"
    if options.studies:
        look, last = partial(study_row, budget=options.budget), "settings"
    elif options.whole:
        look, last = whole_row, "last lines"
    print(f"| case | expected | found | {last} | time | |\n|---|---|---|---|--:|---|")
    done = []
    for row in rows(cases, look):
        print(row, flush=True)
        if row.detail and (options.verbose or not row.right):
            print(f"|   | {row.detail} |", flush=True)
        done.append(row)
    missed = [row.case for row in done if not row.right]
    print(
        f"\n{len(done) - len(missed)} of {len(done)} right" + "".join(f"\nMISS {m}" for m in missed)
    )
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
