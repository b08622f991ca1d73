"""Record pairs: what each cure saves, and what `gpuadvisor diagnose` says of the program before it.

    python benchmarks/defects/record.py results.jsonl [--seconds 540] [--device cpu] [--only TEXT]

Appends a line a pair, in the order of `pairs.py`, and goes on where the file ends: it may be
stopped, and killed, at any moment. Programs start several at a time (`--lanes`), but use the GPU
one after the other. `--home` keeps the profiles, so that later rules can be asked about them
without a GPU (`rediagnose.py`). Several GPUs share the work by `--part 0/4` and so on, each with a
file of its own; `--done` names files of what was recorded before.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from catalogue import DEFECTS
from pairs import HEALTHY, Pair, all_pairs
from recipes import Recipe
from timing import FailedError, Gain, in_turns, living
from turns import TOKEN, WAITED, Gpu, share_cores, usual_lanes

from gpuadvisor.collectors.devices import inventory
from gpuadvisor.version import __version__

PROGRAM = str(Path(__file__).with_name("program.py"))
VERSION = 1
"""Of a line; one that means something else gets another."""
DIAGNOSIS_S = 180.0
"""Longest time that a diagnosis may take, others' turns included."""
KEPT = (
    "rule", "category", "severity", "scope", "summary", "evidence", "improvement_pct",
    "uncalibrated_pct", "saving_ms", "method", "hidden_by", "captured_pct", "source",
)  # fmt: skip
"""What is kept of a finding: advice and knobs are the rule's own."""
Row = dict[str, Any]


class Case(Protocol):
    """A program, or two that are the same but for a defect."""

    name: str

    def described(self) -> Row:
        """Return what is known of it before anything is measured."""
        ...

    def words(self) -> list[str]:
        """Return the script with the defect, and its arguments."""
        ...

    def gain(self, gpu: Gpu) -> tuple[Gain | None, Row, Row]:
        """Return what the cure saves, None of a healthy program; on what it ran; and for how many
        seconds it did what."""
        ...


class Generated:
    """A pair of the generator."""

    def __init__(self, pair: Pair, device: str) -> None:
        self.name, self._pair, self._device = pair.name, pair, device

    def described(self) -> Row:
        pair = self._pair
        return {
            "family": pair.family, "defect": pair.defect, "seed": pair.seed, "part": pair.part,
            "accepts": pair.accepts,
            "recipe": {"planted": given(pair.recipe(False)), "cured": given(pair.recipe(True))},
        }  # fmt: skip

    def words(self) -> list[str]:
        return [PROGRAM, self.name, "--device", self._device]

    def gain(self, gpu: Gpu) -> tuple[Gain | None, Row, Row]:
        if self._pair.defect == HEALTHY:
            return None, {}, {}
        return in_turns(self.words(), gpu.turn, alone=DEFECTS[self._pair.defect].alone)


def given(recipe: Recipe) -> Row:
    """Return the fields of a recipe that are not as they usually are."""
    usual = asdict(Recipe(recipe.family))
    return {name: value for name, value in asdict(recipe).items() if value != usual[name]}


def whole_lines(path: Path) -> bytes:
    """Return the lines of a file of results, of which the last may have been cut; none if there is
    no file."""
    found = path.read_bytes() if path.exists() else b""
    return found[: found.rfind(b"\n") + 1]


class Results:
    """The file of lines, to which more are added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        whole = whole_lines(path)
        self.rows: list[Row] = [json.loads(line) for line in whole.splitlines()]
        with path.open("ab") as file:
            file.truncate(len(whole))

    def add(self, row: Row) -> None:
        """Append a line, and have it on the disk."""
        line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        with self._lock, self._path.open("ab") as file:
            self.rows.append(row)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


class Recorder:
    """Looks at one case after the other, in as many threads as there are lanes."""

    def __init__(self, results: Results, gpu: Gpu, home: Path, deadline_s: float) -> None:
        self._results, self._gpu, self._home = results, gpu, home
        self._versions = versions()
        self._deadline_s = deadline_s
        self._diagnoses: set[subprocess.Popen[str]] = set()
        self.stopped = False

    def lane(self, cases: Iterator[Case], lock: threading.Lock) -> None:
        """Take cases until there are none, or no time is left to begin with one."""
        while not self.stopped and time.monotonic() < self._deadline_s:
            with lock:
                case = next(cases, None)
            if case is None:
                return
            row = self._row(case)
            if not self.stopped:  # else what ended it was not its own fault
                self._results.add(row)
                print(told(row), flush=True)

    def stop(self) -> None:
        """End what is under way; nothing of it is written."""
        self.stopped = True
        for form in list(living):
            form.kill()
        for each in list(self._diagnoses):
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGTERM)

    def _row(self, case: Case) -> Row:
        began = time.monotonic()
        row: Row = {"version": VERSION, "pair": case.name, **case.described()}
        row |= {"date": datetime.now(UTC).isoformat(timespec="seconds"), **self._versions}
        try:
            gain, device, seconds = case.gain(self._gpu)
            timed = time.monotonic()
            row |= {"device": device, "gain_pct": None if gain is None else rounded(asdict(gain))}
            diagnosis, waited_s = self._diagnosed(case)
            row["diagnosis"] = thin(diagnosis)
            seconds |= {"timed": timed - began, "diagnosis_waited": waited_s}
            row["seconds"] = rounded(seconds | {"all": time.monotonic() - began})
        except FailedError as error:
            row["error"] = str(error)[:500]
        return row

    def _diagnosed(self, case: Case) -> tuple[Row, float | None]:
        """Return what `gpuadvisor diagnose` says as JSON, and how many seconds of it the program
        waited for its turn; None of one that waits for none."""
        script, *words = case.words()
        name = f"{case.name}-{uuid.uuid4().hex[:6]}"  # a killed recording may have stored it, too
        line = [
            sys.executable, "-m", "gpuadvisor", "diagnose", script, "--json", "--name", name,
            "--timeout", str(int(DIAGNOSIS_S)), "--", *words,
        ]  # fmt: skip
        more = {"GPUADVISOR_HOME": str(self._home), TOKEN: str(self._gpu.token)}
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as said:
            waited = Path(folder, "waited")
            more[WAITED] = str(waited)
            process = subprocess.Popen(
                line, stdout=subprocess.PIPE, stderr=said, text=True, cwd=folder,
                env={**os.environ, **more}, start_new_session=True,
            )  # fmt: skip
            self._diagnoses.add(process)
            try:
                answer, _ = process.communicate(timeout=DIAGNOSIS_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
                raise FailedError(f"its diagnosis took over {DIAGNOSIS_S:.0f} s") from None
            finally:
                self._diagnoses.discard(process)
            said.seek(0)
            if process.returncode:
                raise FailedError(f"diagnose ended with {process.returncode}: {said.read()[-400:]}")
            waited_s = float(waited.read_text("ascii")) if waited.exists() else None
        return dict(json.loads(answer)), waited_s


def versions() -> Row:
    """Return whose rules are asked, and under which driver."""
    head = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    told = ""
    with suppress(OSError):  # no git there
        told = subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip()
    return {"gpuadvisor": __version__, "commit": told or None, "driver": inventory().driver}


def thin(diagnosis: Row) -> Row:
    """Return what of a diagnosis something can be fitted to, and its account."""
    return {
        "profile": diagnosis["profile"],
        "run_ms": diagnosis["run_ms"],
        "unprofiled_step_ms": diagnosis["unprofiled_step_ms"],
        "unprofiled_not_used": diagnosis["unprofiled_not_used"],
        "together_pct": diagnosis["together_pct"],
        "looked_at": diagnosis["looked_at"],
        "findings": [
            {name: each[name] for name in KEPT if each.get(name) is not None}
            for each in diagnosis["findings"]
        ],
        "not_measured": [each["rule"] for each in diagnosis["not_measured"]],
        "failed": diagnosis["failed"],
        "account": [
            {name: each[name] for name in ("device", "begin_ns", "end_ns", "entries")}
            for each in diagnosis["account"] or ()
        ],
    }


def rounded(values: Row) -> Row:
    """Return numbers as precise as they are."""
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()}


def told(row: Row) -> str:
    """Return a line for people about what was recorded."""
    if "error" in row:
        return f"{row['pair']}: {row['error']}"
    gain = row["gain_pct"]
    saved = "healthy" if gain is None else "{value:.1f} % ({low:.1f}-{high:.1f})".format(**gain)
    shown = [each for each in row["diagnosis"]["findings"] if "hidden_by" not in each]
    said = "nothing found"
    if shown:
        worth = shown[0].get("improvement_pct")
        said = shown[0]["rule"] + (" {low:.0f}-{high:.0f} %".format(**worth) if worth else "")
    return f"{row['pair']}: {saved}; {said}; {row['seconds']['all']:.0f} s"


def record(cases: Iterable[Case], results: Results, recorder: Recorder, lanes: int) -> None:
    """Look at those that have no line yet."""
    done = {row["pair"] for row in results.rows}
    left = iter([each for each in cases if each.name not in done])
    lock = threading.Lock()
    threads = [threading.Thread(target=recorder.lane, args=(left, lock)) for _ in range(lanes)]
    for each in threads:
        each.start()
    try:
        for each in threads:
            each.join()
    except KeyboardInterrupt:
        recorder.stop()
        for each in threads:
            each.join()
        raise


def chosen_pairs(device: str, only: str, rounds: int) -> Iterator[Pair]:
    """Yield the pairs that can be recorded there, and whose name has some text."""
    for pair in all_pairs():
        is_here = device == "cuda" or pair.defect == HEALTHY or DEFECTS[pair.defect].on_cpu
        if is_here and pair.seed < rounds and re.search(only, pair.name):
            yield pair


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what recorders are told alike."""
    parser.add_argument("results", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin with none after that")
    parser.add_argument(
        "--done", type=Path, nargs="*", default=[], help="leave out what these have"
    )
    parser.add_argument("--part", default="0/1", help="I/N: each Nth of the others from the Ith on")
    parser.add_argument("--home", type=Path, help="keep the profiles in this folder")
    parser.add_argument("--retry", action="store_true", help="try again what failed before")


def main() -> int:
    """Record until all is done or time is up."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments(parser)
    parser.add_argument(
        "--lanes", type=int, default=usual_lanes(), help="programs that start at a time"
    )
    parser.add_argument("--only", default="", help="a regular expression that names match")
    parser.add_argument("--rounds", type=int, default=99, help="seeds of each defect, at most")
    chosen = parser.parse_args()
    share_cores(chosen.lanes)
    pairs = chosen_pairs(chosen.device, chosen.only, chosen.rounds)
    return go(chosen, [Generated(each, chosen.device) for each in pairs])


def go(chosen: argparse.Namespace, cases: list[Case]) -> int:
    """Record those of these that the command line asks for; return the exit status."""
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = Results(chosen.results)
    if chosen.retry:
        results.rows = [row for row in results.rows if "error" not in row]
    lines = [line for path in chosen.done for line in whole_lines(path).splitlines()]
    there = {json.loads(line)["pair"] for line in lines}
    first, every = map(int, chosen.part.split("/"))
    cases = [each for each in cases if each.name not in there][first::every]
    before = len(results.rows)
    with (
        tempfile.TemporaryDirectory(prefix="defects-") as folder,
        Gpu(Path(folder, "token")) as gpu,
    ):
        home = (chosen.home or Path(folder)).absolute()
        recorder = Recorder(results, gpu, home, began + chosen.seconds)
        status = 0
        try:
            record(cases, results, recorder, chosen.lanes)
        except KeyboardInterrupt:
            print("interrupted; what was written stays", file=sys.stderr)
            status = 130
    new = results.rows[before:]
    failed = sum("error" in row for row in new)
    took = time.monotonic() - began
    print(
        f"{len(new)} recorded in {took:.0f} s by {chosen.lanes} at a time, {failed} of them failed;"
        f" the GPU was held {gpu.held_s:.0f} s for timing;"
        f" {len(results.rows)} of {len(cases)} are there"
    )
    print(parts_of_pairs(new), flush=True)
    return status


def parts_of_pairs(rows: Iterable[Row]) -> str:
    """Return a line that says how many seconds pairs took for what, each the median."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for part, seconds in row.get("seconds", {}).items():
            if seconds is not None:
                found.setdefault(part, []).append(seconds)
    told = ", ".join(f"{part} {median(each):.1f}" for part, each in found.items())
    return f"medians in seconds: {told}" if told else "no pair was recorded whole"


if __name__ == "__main__":
    sys.exit(main())
