"""Rows of the table "By hand", made in calls of minutes on whatever machine is had.

    python benchmarks/hand_rows.py studies  KEPT --scripts gin,vae --budgets rest,5m --seconds 500
    python benchmarks/hand_rows.py searches KEPT --scripts gin,vae --seconds 500
    python benchmarks/hand_rows.py compared KEPT --scripts gin,vae --seconds 500
    python benchmarks/hand_rows.py rows     KEPT

Scripts are names of `public_scripts.toml`, whose code lies in KEPT/public. Each visible GPU has one
task at a time and an equal part of the cores; where there is no GPU, the CPU runs the scripts'
small forms. `studies` is `tune`, once for each script and budget; `rest` is what the call has left.
`searches` is `by_hand.py`, `compared` is `hand_compared.py`, and `rows` prints what was compared.

What is done is kept in KEPT/hand/SCRIPT and not done again, also on another machine:

    BUDGET/study.json, log.txt, plan.toml    what `tune` said, and each line with its second
    runs.jsonl, runs.json, search.txt        the runs of the search by hand, and what it found
    compared.jsonl, compared.json, ...txt    the runs that a row is from, and the row

A task begins only where there is time for it, and is told to end with the call. Status 1 where one
ended by itself with another status than 0.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import hand_compared
from fetch_public import Script, scripts
from gpu_sessions import cores_of, visible_gpus
from hand_runs import written

from gpuadvisor.errors import UsageError
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit

HERE = Path(__file__).parent
REST = "rest"
LEAST_REST_S = 420.0
"""Time below which the rest of a call is no longer study than one of five minutes. [own]"""
LEAST_SEARCH_S = 100.0
"""Time below which a search does hardly more than run the unchanged script on this machine: three
runs of 13 to 20 s."""
MARGIN_S = 5.0
"""Kept back of a call's rest: for an interpreter to start, and a result to be written."""
PATIENCE_S = 15.0
"""Time that a task has to end when it is told to."""
POLL_S = 0.1


@dataclass(frozen=True)
class Task:
    """One program for one script."""

    script: Script
    name: str
    least_s: float
    """Time that a call must have left for it."""
    words: Callable[[float], Sequence[str]]
    """Returns its command line, for the seconds that are left."""
    log: Path
    """Where its lines go, each after its second."""
    done: Callable[[int], None] = lambda status: None
    """Called with its status when it has ended."""
    result: Path | None = None
    """Where its stdout goes, if not to the log."""


@dataclass
class Call:
    """Tasks of one call on the GPUs that are there."""

    tasks: list[Task]
    until_s: float
    root: Path
    python: str
    gpus: Sequence[str]
    """Empty where there is none, and all is run on the CPU."""
    failed: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        """Scripts that run: two of one would write to the same folder."""

    @property
    def left_s(self) -> float:
        return self.until_s - time.monotonic()

    @property
    def _is_over(self) -> bool:
        return self.stopped.is_set() or self.left_s <= 0

    def run(self) -> None:
        """Run what there is time for; leave in `tasks` what was not begun."""
        lanes = [
            threading.Thread(target=self._work, args=(place,))
            for place in range(max(1, len(self.gpus)))
        ]
        for lane in lanes:
            lane.start()
        try:
            for lane in lanes:
                lane.join()
        except KeyboardInterrupt:
            self.stopped.set()
            for lane in lanes:
                lane.join()
            raise

    def _work(self, lane: int) -> None:
        while not self.stopped.is_set() and any(self._has_time(each) for each in self.tasks):
            if (task := self._take(lane)) is None:
                time.sleep(POLL_S)  # what is left is another lane's, or its script runs
                if not self._busy:
                    return
                continue
            try:
                self._run(task, lane)
            finally:
                self._busy.discard(task.script.about["name"])

    def _has_time(self, task: Task) -> bool:
        return task.least_s <= self.left_s

    def _take(self, lane: int) -> Task | None:
        with self._lock:
            for task in self.tasks:
                name, own = task.script.about["name"], task.script.about.get("only_gpu")
                is_here = own is None or self.gpus[lane : lane + 1] in ([], [own])
                if self._has_time(task) and is_here and name not in self._busy:
                    self.tasks.remove(task)
                    self._busy.add(name)
                    return task
        return None

    def _run(self, task: Task, lane: int) -> None:
        began_s = time.monotonic()
        task.log.parent.mkdir(parents=True, exist_ok=True)
        name = task.script.about["name"]
        small = [] if self.gpus else ["--small"]
        data = [str(HERE / "fetch_public.py"), str(self.root), "--data", "--only", name, *small]
        status = self._tell(task, [self.python, *data], lane, None)
        if status == 0 and self.left_s > 0:
            words = [self.python, *task.words(self.left_s)]
            status = self._tell(task, words, lane, task.result)
        task.done(status)
        said = "".join(task.log.read_text("utf-8").splitlines()[-1:])
        print(f"{task.name}: status {status} after {time.monotonic() - began_s:.0f} s:{said}")
        if status != 0 and not self._is_over:
            self.failed.append(task.name)

    def _tell(self, task: Task, words: Sequence[str], lane: int, result: Path | None) -> int:
        """Run a command of a task until it ends or is told to; return its status."""
        cores = sorted(os.sched_getaffinity(0))
        own = cores_of(lane, max(1, len(self.gpus)), cores)
        pinned = ["taskset", "-c", ",".join(map(str, own)), *words]
        with ExitStack() as files:
            log = files.enter_context(task.log.open("a", encoding="utf-8"))
            process = subprocess.Popen(
                pinned,
                cwd=task.script.folder,
                env=self._environment(task, lane),
                stdin=subprocess.DEVNULL,
                stdout=files.enter_context(result.open("wb")) if result else subprocess.PIPE,
                stderr=subprocess.PIPE if result else subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is passed on, once
            )
            lines = process.stderr if result else process.stdout
            assert lines is not None
            reader = threading.Thread(target=stamped, args=(lines, log), daemon=True)
            reader.start()
            told_s = None
            while process.poll() is None:
                if told_s is None and self._is_over:
                    told_s = time.monotonic()
                    _signal(process, signal.SIGINT)
                if told_s is not None and time.monotonic() > told_s + PATIENCE_S:
                    break
                time.sleep(POLL_S)
            _signal(process, signal.SIGKILL, whole=True)  # what it left behind, too
            reader.join(PATIENCE_S)
            return process.wait()

    def _environment(self, task: Task, lane: int) -> dict[str, str]:
        own = task.script.environment
        if "PYTHONPATH" in own and "PYTHONPATH" in os.environ:
            own["PYTHONPATH"] += os.pathsep + os.environ["PYTHONPATH"]
        home = self.root.parent / f"home-{task.name.replace(' ', '-')}"
        gpu = {"CUDA_VISIBLE_DEVICES": self.gpus[lane]} if self.gpus else {}
        fixed = {"GPUADVISOR_HOME": str(home), "PYTHONUNBUFFERED": "1"}
        return {**os.environ, **own, **gpu, **fixed}


def stamped(lines: IO[bytes], log: IO[str]) -> None:
    """Write each line to a log after the seconds since the first could have come."""
    began_s = time.monotonic()
    with lines:
        for line in lines:
            text = line.decode("utf-8", "replace").rstrip()
            log.write(f"{time.monotonic() - began_s:6.1f} {text}\n")
            log.flush()


def _signal(process: subprocess.Popen[bytes], number: int, whole: bool = False) -> None:
    with suppress(ProcessLookupError):
        (os.killpg if whole else os.kill)(process.pid, number)


# What there is to do. -----------------------------------------------------------------------------


def studies(
    chosen: Sequence[Script], kept: Path, budgets: Sequence[str], on_cpu: bool
) -> Iterator[Task]:
    """Yield the studies that are not there yet, of each budget all scripts."""
    for budget in budgets:
        for script in chosen:
            folder = folder_of(kept, script) / budget
            if not (folder / "study.json").exists():
                yield _study(script, folder, budget, on_cpu)


def _study(script: Script, folder: Path, budget: str, on_cpu: bool) -> Task:
    asked = {"budget": budget}

    def words(left_s: float) -> list[str]:
        if budget == REST:
            asked["budget"] = f"{int(left_s - MARGIN_S)}s"
        name, *args = script.words(on_cpu)
        options = ["--budget", asked["budget"], "--json", "--plan", str(folder / "plan.toml")]
        return ["-m", "gpuadvisor", "tune", *options, name, "--", *args]

    def done(status: int) -> None:
        with suppress(OSError, ValueError):
            study = json.loads(draft.read_text("utf-8"))
            is_whole = status == 0 and not study.get("interrupted")
            written(folder / "about.json", asked)
            draft.rename(folder / ("study.json" if is_whole else "cut.json"))

    draft = folder / "study.draft"
    least_s = LEAST_REST_S if budget == REST else BudgetLimit.parse(budget).seconds or 0.0
    name = f"{script.about['name']} {budget}"
    return Task(script, name, least_s, words, folder / "log.txt", done, draft)


def searches(chosen: Sequence[Script], kept: Path, seconds: float, on_cpu: bool) -> Iterator[Task]:
    """Yield the searches by hand that are not over, or were cut off by fewer seconds."""
    for script in chosen:
        state = folder_of(kept, script) / "runs.jsonl"
        found = hand_compared.document(state.with_suffix(".json"))
        is_over = found is not None and found["finished"]
        if not is_over or (found["cut"] and found["allowed_s"] < seconds):
            options = ["by_hand.py", str(state), "--seconds", str(seconds)]
            yield _own(script, state.with_name("search.txt"), LEAST_SEARCH_S, options, on_cpu)


def comparisons(chosen: Sequence[Script], kept: Path, on_cpu: bool) -> Iterator[Task]:
    """Yield the comparisons that are not done yet, or whose sides have changed."""
    for script in chosen:
        folder = folder_of(kept, script)
        try:
            if not hand_compared.is_done(folder):
                least_s = hand_compared.needed_s(folder)
                options = ["hand_compared.py", str(folder)]
                yield _own(script, folder / "compared.txt", least_s, options, on_cpu)
        except UsageError as error:
            print(f"{script.about['name']}: not compared: {error}")


def _own(script: Script, log: Path, least_s: float, options: Sequence[str], on_cpu: bool) -> Task:
    program, *rest = options

    def words(left_s: float) -> list[str]:
        call = ["--call-seconds", f"{left_s - MARGIN_S:.0f}"]
        return [str(HERE / program), *rest, *call, "--", *script.words(on_cpu)]

    return Task(script, f"{script.about['name']} {log.stem}", least_s, words, log)


def folder_of(kept: Path, script: Script) -> Path:
    """Return where all of a script's row is kept."""
    return kept / "hand" / str(script.about["name"])


def rows(kept: Path) -> list[str]:
    """Return the table of what was compared."""
    known = [json.loads(each.read_text("utf-8")) for each in kept.glob("hand/*/compared.json")]
    ordered = sorted(known, key=lambda each: str(each["script"]))
    return [hand_compared.HEAD, *map(hand_compared.row, ordered)] if known else []


def unready(chosen: Sequence[Script]) -> Mapping[str, str]:
    """Return why scripts cannot run here, by their names."""
    why = {}
    for script in chosen:
        if not script.folder.is_dir():
            why[script.about["name"]] = f"its code is not in {script.folder}"
        elif missing := script.missing():
            why[script.about["name"]] = f"{', '.join(missing)} is not installed"
    return why


def main() -> int:
    """Run what a call has time for, or print the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("studies", "searches", "compared", "rows"))
    parser.add_argument("kept", type=Path, help="folder that stays from call to call")
    parser.add_argument("--scripts", help="names, separated by commas; all by default")
    parser.add_argument("--budgets", default=f"{REST},5m", help="of studies (default: rest,5m)")
    parser.add_argument(
        "--search-seconds", type=float, default=1500.0, help="of all calls (default: 1500)"
    )
    parser.add_argument("--seconds", type=float, default=500.0, help="of this one (default: 500)")
    parser.add_argument("--python", default=sys.executable, help="that has torch")
    options = parser.parse_args()
    until_s = time.monotonic() + options.seconds
    kept = options.kept.absolute()
    if options.what == "rows":
        print("\n".join(rows(kept)))
        return 0
    known = scripts(kept / "public")
    names = options.scripts.split(",") if options.scripts else list(known)
    if unknown := sorted(set(names) - known.keys()):
        parser.error(f"no script is named {', '.join(unknown)}")
    chosen = [known[name] for name in names]
    left_out = unready(chosen)
    for name, why in left_out.items():
        print(f"{name}: not run: {why}")
    chosen = [each for each in chosen if each.about["name"] not in left_out]
    gpus = visible_gpus()
    on_cpu = not gpus
    if on_cpu:
        print("no GPU is visible: the small forms of the scripts are run on the CPU")
    tasks = {
        "studies": lambda: studies(chosen, kept, options.budgets.split(","), on_cpu),
        "searches": lambda: searches(chosen, kept, options.search_seconds, on_cpu),
        "compared": lambda: comparisons(chosen, kept, on_cpu),
    }[options.what]()
    call = Call(list(tasks), until_s, kept / "public", options.python, gpus)
    call.run()
    if call.tasks:
        print(f"no time for {', '.join(each.name for each in call.tasks)}: in the next call")
    if options.what == "compared":
        print("\n".join(rows(kept)))
    return int(bool(call.failed or left_out))


if __name__ == "__main__":
    sys.exit(main())
