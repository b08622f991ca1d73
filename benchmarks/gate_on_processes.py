"""How often real gates are wrong: `gpuadvisor gate` beside a process that comes and goes.

    python benchmarks/gate_on_processes.py TABLE.jsonl --lanes 30 --cores 1 --seconds 1500
    python benchmarks/gate_on_processes.py TABLE.jsonl --device light --lanes 7 --cores 2
    python benchmarks/gate_on_processes.py TABLE.jsonl --device cuda --gates same=30,3%=10,kernel=3
    python benchmarks/gate_on_processes.py TABLE.jsonl --show

Two folders hold the same training of torch (`gated_script.py`), whose steps of 50 ms are real work,
or steps of 10 ms in numpy (`gated_light_script.py`), of which an hour holds more gates; that of the
head has some per cent more of it where it is to be slower. How much that is, is timed
in each lane before its first gate, and what all gates of a kind measured stands in the table, too.
Each gate is one command of the real program. Beside it, on the same cores, a process works for a
part of a period that are both drawn for that gate: 4 s to 5 min, a tenth to nine tenths of it.

Gates are appended to TABLE.jsonl as they end, and the same command goes on where it was cut off. A
gate that the time was too short for is noted, too, and comes first in the next session with the
same neighbour: else long ones, which are the doubtful ones, would be missing from the table. Give
a session half an hour: a gate may need 56 starts of the script, beside a process that slows them.

Lanes run side by side, each on cores of its own (`taskset`) and with a GPUADVISOR_HOME of its own;
with `--device cuda` each on a GPU of its own. A machine has one lock for its CPU, so that studies
do not measure each other. A lane gets past it in a network namespace (`unshare --net`), which is
where the lock is kept; where that is forbidden, the lock has another name for each lane. The lines
say which it was.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.rates import interval

SCRIPTS = {"cpu": "gated_script.py", "light": "gated_light_script.py", "cuda": "gated_script.py"}
"""What is gated on each device; `light` is the CPU, and numpy, which starts sooner than torch."""
USUAL = {
    "cpu": "same=200,5%=20,1%=100",
    "light": "same=200,5%=20,1%=100",
    "cuda": "same=30,3%=10,kernel=3,graph_break=3",
}
VERDICTS = {0: "pass", 4: "fail", 6: "inconclusive", 7: "refused"}
PERIODS_S, DUTIES = (4.0, 300.0), (0.1, 0.9)
"""Of the process beside a gate; periods are drawn with equal chances of each factor."""
SHORTEST_S = 30.0
"""Time left below which no gate is begun: none ends in it."""
WHOLE = 0.8
"""Part of a session for which a gate was run that it would hardly end in another one like it."""
PATIENCE_S = 20.0
"""Time that a gate has to clean up when it is told to end."""
NEIGHBOUR = """
import sys, time
period_s, duty, offset_s = map(float, sys.argv[1:])
data, other = bytearray(1 << 22), bytearray(1 << 22)
while True:
    phase_s = (time.monotonic() + offset_s) % period_s
    if phase_s < duty * period_s:
        data[:] = other  # memory traffic, not only cycles
    else:
        time.sleep(min(0.05, period_s - phase_s))
"""
RENAMED = """
import sys
from gpuadvisor.storage import locks
locks.PREFIX += sys.argv.pop(1)
from gpuadvisor.cli import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Task:
    """One gate that the table is to hold."""

    kind: str
    """`same`, a share as `5%`, `kernel` or `graph_break`: what the head does more."""
    number: int
    device: str
    has_neighbour: bool

    @property
    def key(self) -> tuple[str, int, str, bool]:
        return self.kind, self.number, self.device, self.has_neighbour

    @property
    def neighbour(self) -> dict[str, float]:
        """Period, share and offset of the process beside it."""
        generator = random.Random(f"{self.kind} {self.number}")
        low, high = PERIODS_S
        period_s = low * (high / low) ** generator.random()
        offset_s = generator.uniform(0, period_s)
        return {"period_s": period_s, "duty": generator.uniform(*DUTIES), "offset_s": offset_s}


def key_of(line: Mapping[str, Any]) -> tuple[str, int, str, bool]:
    """Return which gate a line of the table is of."""
    return line["kind"], line["number"], line["device"], line["neighbour"] is not None


def isolation() -> list[str] | None:
    """Return what starts a command in a network namespace; None where nothing may."""
    for words in (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]):
        if shutil.which(words[0]) and not subprocess.call([*words, "true"], stderr=-3):
            return words
    return None


@dataclass
class Table:
    """The file of gates."""

    path: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]

    def append(self, line: Mapping[str, Any]) -> None:
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def missing(self, wanted: Sequence[Task], seconds: float) -> list[Task]:
        """Return what is still to be done: first what was cut off, last what takes too long."""
        cut: dict[tuple[str, int, str, bool], float] = {}
        done = set()
        for line in self.lines():
            if line["verdict"] in VERDICTS.values():
                done.add(key_of(line))
            else:
                cut[key_of(line)] = max(line["wall_s"], cut.get(key_of(line), 0.0))

        def turn(task: Task) -> int:
            return 1 if task.key not in cut else 2 if cut[task.key] > WHOLE * seconds else 0

        return sorted((task for task in wanted if task.key not in done), key=turn)


@dataclass
class Lane:
    """Gates one after the other, on cores or a GPU of their own."""

    number: int
    cores: Sequence[int]
    device: str
    wrap: Sequence[str] | None
    folder: Path
    stop: threading.Event
    until_s: float
    options: Sequence[str]
    """Further ones of the gates."""

    def __post_init__(self) -> None:
        home = {"GPUADVISOR_HOME": str(self.folder / "home")}
        cache = {"XDG_CACHE_HOME": str(self.folder / "cache")}
        visible = {"CUDA_VISIBLE_DEVICES": gpu_of(self.number) if self.device == "cuda" else ""}
        self._environment = {**os.environ, **home, **cache, **visible}
        if paths := os.environ.get("PYTHONPATH"):  # a lane has a folder of its own
            absolute = [str(Path(each).resolve()) for each in paths.split(os.pathsep)]
            self._environment["PYTHONPATH"] = os.pathsep.join(absolute)
        self._script = Path(__file__).with_name(SCRIPTS[self.device])
        self._pinned = ["taskset", "-c", ",".join(map(str, self.cores))]
        self._calibration: dict[str, float] = {}

    def work(self, queue: Iterator[Task], table: Table) -> None:
        """Run gates until there is no more of them, or no time."""
        self._calibrate()
        for task in queue:
            if self.stop.is_set() or time.monotonic() > self.until_s - SHORTEST_S:
                return
            line = self.gate(task)
            table.append(line)
            print(
                f"lane {self.number}: {task.kind} {task.number}: {line['verdict']}, "
                f"{line['pairs']} pairs, {line['wall_s']:.0f} s {line['reason'][:120]}",
                flush=True,
            )

    def gate(self, task: Task) -> dict[str, Any]:
        """Run one gate and return its line."""
        base, head = self.folder / "base", self.folder / "head"
        extra = self._write(task, base, head)
        program = (
            [sys.executable, "-m", "gpuadvisor"]
            if self.wrap is not None
            else [sys.executable, "-c", RENAMED, f"lane-{self.number}-"]
        )
        command = [*self._pinned, *(self.wrap or ()), *program, "gate", "--json"]
        command += ["--base-folder", str(base), "--head-folder", str(head)]
        command += ["--seed", str(task.number), *self.options, "train.py"]
        began_s = time.monotonic()
        with self._beside(task):
            status, out, error = self._finished(command)
        found = json.loads(out) if out.strip() else {}
        verdict = VERDICTS.get(status, f"status {status}") if status is not None else "cut off"
        metrics = {each["metric"]: each for each in found.get("metrics", ())}
        time_of_step = metrics.get("step_time", {})
        runs = found.get("runs", ())
        return {
            "kind": task.kind,
            "number": task.number,
            "device": task.device,
            "neighbour": task.neighbour if task.has_neighbour else None,
            "verdict": verdict,
            "reason": found.get("reason") or (error.strip().splitlines() or [""])[-1],
            "failed": {
                name: each["detail"] for name, each in metrics.items() if each["verdict"] == "fail"
            },
            "ratio": time_of_step.get("ratio"),
            "low": time_of_step.get("low"),
            "high": time_of_step.get("high"),
            "pairs": found.get("pairs", 0),
            "starts": len(runs),
            "disturbed": sum(run["disturbance"] is not None for run in runs),
            "run_ms": [(run["side"], run["place"], run["mean_step_ms"]) for run in runs],
            "run_s": [(run["startup_s"], run["wall_s"]) for run in runs],
            "notes": found.get("notes", []),
            "injected": extra,
            "calibration": self._calibration,
            "wall_s": time.monotonic() - began_s,
            "options": list(self.options),
            "cores": len(self.cores),
            "lock": "namespace" if self.wrap is not None else "renamed",
            "environment": found.get("environment"),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }

    def _write(self, task: Task, base: Path, head: Path) -> float:
        """Write both folders; return the share of a step that the head's takes longer."""
        usual: dict[str, Any] = {"device": self.device, "units": self._calibration["units"]}
        changed, injected = dict(usual), 0.0
        if task.kind.endswith("%"):
            share, unit_ms = float(task.kind[:-1]) / 100, self._calibration["unit_ms"]
            more = max(1, round(share * self._calibration["step_ms"] / unit_ms))
            changed["units"] += more
            injected = more * unit_ms / self._calibration["step_ms"]
        elif task.kind != "same":
            usual["compile"] = changed["compile"] = task.kind == "graph_break"
            changed[task.kind] = True
        for folder, settings in ((base, usual), (head, changed)):
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(self._script, folder / "train.py")
            (folder / "settings.json").write_text(json.dumps(settings), "utf-8")
        return injected

    def _calibrate(self) -> None:
        place = self.folder / "base"
        place.mkdir(parents=True)
        shutil.copy(self._script, place / "train.py")
        (place / "settings.json").write_text(json.dumps({"device": self.device}), "utf-8")
        status, out, error = self._finished(
            [*self._pinned, sys.executable, str(place / "train.py"), "--calibrate"]
        )
        if status:
            raise RuntimeError(f"the script could not be timed: {error[-500:]}")
        self._calibration = json.loads(out or "{}")

    @contextmanager
    def _beside(self, task: Task) -> Iterator[None]:
        """Have a process come and go on the lane's cores."""
        if not task.has_neighbour:
            yield
            return
        words = [str(task.neighbour[name]) for name in ("period_s", "duty", "offset_s")]
        process = subprocess.Popen([*self._pinned, sys.executable, "-c", NEIGHBOUR, *words])
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def _finished(self, command: Sequence[str]) -> tuple[int | None, str, str]:
        """Run a command to its end; its status is None where there was no time for it."""
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while True:
            try:
                out, error = process.communicate(timeout=0.5)
                return process.returncode, out, error
            except subprocess.TimeoutExpired:
                if not (self.stop.is_set() or time.monotonic() > self.until_s):
                    continue
            process.send_signal(signal.SIGINT)
            try:
                _, error = process.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                _, error = process.communicate()
            return None, "", error


def gpu_of(lane: int) -> str:
    """Return the GPU of a lane, one of those that are visible; ValueError if there are fewer."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else [str(lane)] * (lane + 1)
    if lane >= len(gpus):
        raise ValueError(f"{lane + 1} lanes want a GPU each: visible are {visible}")
    return gpus[lane]


def tasks(gates: str, device: str, has_neighbour: bool) -> list[Task]:
    """Return the gates that are asked for, all kinds in step."""
    wanted = []
    for each in gates.split(","):
        kind, count = each.split("=")
        if not (kind in ("same", "kernel", "graph_break") or float(kind.removesuffix("%")) > 0):
            raise ValueError(kind)
        made = [Task(kind, number, device, has_neighbour) for number in range(int(count))]
        wanted += [((task.number + 0.5) / len(made), task) for task in made]
    return [task for _, task in sorted(wanted, key=lambda each: each[0])]


def shown(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table: a row a kind, with the ends of the 95 % intervals of rates."""
    kinds: dict[tuple[str, str, bool], dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for line in lines:
        kind, number, device, has_neighbour = key_of(line)
        kinds[device, kind, has_neighbour][number] = line  # a cut one is replaced when it ends
    yield (
        "| device | head | beside a process | gates | fails | passes | inconclusive | else "
        "| cut off | injected | measured | pairs | starts | time |\n|---|---|---|" + "--:|" * 11
    )
    for (device, kind, has_neighbour), found in sorted(kinds.items()):
        ended = [line for line in found.values() if line["verdict"] != "cut off"]
        counts = [sum(line["verdict"] == v for line in ended) for v in list(VERDICTS.values())[:3]]
        passes, fails, open_ = counts
        ratios = [line["ratio"] for line in ended if line["ratio"]]
        cells = [
            device,
            kind,
            "yes" if has_neighbour else "no",
            str(len(ended)),
            _rate(fails, len(ended)),
            _rate(passes, len(ended)),
            _rate(open_, len(ended)),
            str(len(ended) - sum(counts)),
            str(len(found) - len(ended)),
            _middle([line["injected"] for line in ended], "{:.2%}"),
            _middle([ratio - 1 for ratio in ratios], "{:+.2%}"),
            _middle([line["pairs"] for line in ended], "{:.0f}"),
            _middle([line["starts"] for line in ended], "{:.0f}"),
            _middle([line["wall_s"] for line in ended], "{:.0f} s"),
        ]
        yield f"| {' | '.join(cells)} |"
        named = [line["failed"] for line in ended if line["failed"]]
        if kind in ("kernel", "graph_break") and named:
            yield f"\nnamed: {json.dumps(named)[:500]}\n"


def _rate(count: int, of: int) -> str:
    if not of:
        return "0"
    low, high = interval(count, of)
    return f"{count} ({low:.1%} to {high:.1%})"


def _middle(values: Sequence[float], form: str) -> str:
    return form.format(median(values)) if values else ""


def main() -> None:
    """Run what the table lacks, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", type=Path, help="JSON lines, which this appends to")
    parser.add_argument("--device", choices=tuple(USUAL), default="cpu")
    usual = USUAL["cpu"].replace("%", "%%")  # argparse formats its help
    parser.add_argument("--gates", help=f"kinds and numbers in all (default: {usual})")
    parser.add_argument("--lanes", type=int, default=1, help="gates side by side")
    parser.add_argument("--cores", type=int, default=2, help="of each lane")
    parser.add_argument("--seconds", type=float, default=1500.0, help="for this session")
    parser.add_argument("--options", default="", help="further ones of `gpuadvisor gate`, quoted")
    parser.add_argument("--alone", action="store_true", help="without a process beside them")
    parser.add_argument("--show", action="store_true", help="only print the table")
    chosen = parser.parse_args()
    table = Table(chosen.table)
    if not chosen.show:
        has_neighbour = not chosen.alone and chosen.device != "cuda"
        try:
            wanted = tasks(chosen.gates or USUAL[chosen.device], chosen.device, has_neighbour)
        except ValueError as error:
            parser.error(f"--gates {chosen.gates}: {error}; such as {USUAL['cpu']}")
        here = sorted(os.sched_getaffinity(0))
        if chosen.lanes * chosen.cores > len(here):
            parser.error(f"{chosen.lanes} lanes of {chosen.cores} cores: here are {len(here)}")
        if chosen.device == "cuda":
            try:
                gpu_of(chosen.lanes - 1)
            except ValueError as error:
                parser.error(str(error))
        session(table, table.missing(wanted, chosen.seconds), chosen, here)
    print("\n".join(shown(table.lines())))


def session(
    table: Table, missing: Sequence[Task], chosen: argparse.Namespace, here: Sequence[int]
) -> None:
    """Run gates in lanes until all are done or the time is over."""
    until_s = time.monotonic() + chosen.seconds
    stop = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stop.set())
    wrap, lock, rest = isolation(), threading.Lock(), iter(missing)
    print(f"{len(missing)} gates; the lock of the CPU: {' '.join(wrap or ['renamed'])}")

    def queue() -> Iterator[Task]:
        while True:
            with lock:
                task = next(rest, None)
            if task is None:
                return
            yield task

    with tempfile.TemporaryDirectory(prefix="gates-") as above:
        lanes = [
            Lane(
                number,
                here[number * chosen.cores : (number + 1) * chosen.cores],
                chosen.device,
                wrap,
                Path(above, str(number)),
                stop,
                until_s,
                shlex.split(chosen.options),
            )
            for number in range(chosen.lanes)
        ]
        threads = [
            threading.Thread(target=lane.work, args=(queue(), table), name=f"lane {lane.number}")
            for lane in lanes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)  # so that signals are heard


if __name__ == "__main__":
    main()
