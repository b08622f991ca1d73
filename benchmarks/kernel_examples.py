"""The kernels of `examples/kernels` on a GPU: their best points, and what a search finds of them.

    python benchmarks/kernel_examples.py --kernel transpose --brute-force --rows rows.jsonl
    python benchmarks/kernel_examples.py --kernel transpose --search 5 --rows rows.jsonl
    python benchmarks/kernel_examples.py --kernel softmax --beside --rows rows.jsonl
    python benchmarks/kernel_examples.py --kernel softmax --replay --device "NVIDIA H200"

`--brute-force` evaluates every point of the first problem (`--problem N` another), in the file
`NAME-N-DEVICE.json` of `--folder`. It goes on where it was stopped: begin it again until it says
that all points are known; before, nothing else is done, and the status is 1. `--search SEEDS` lets
the search have 15 % of the points, on the GPU, with as many processes that compile ahead as a user
gets, and looks up in that file how good what it found really is. `--replay` searches the file with
more seeds, which takes minutes of a CPU and needs no GPU. `--beside` times the default and the best
point in turns with torch, torch.compile and a copy that moves as many bytes; of softmax and layer
norm also what a search at the quick effort finds, and Helion's version at its own, with the seconds
that each took to search.
Each adds rows to the file of `--rows`, and what has its row there already is not done again.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from gpuadvisor.collectors.kernels.child.arguments import Arguments, difference
from gpuadvisor.collectors.kernels.child.backends import Target, build
from gpuadvisor.collectors.kernels.child.timing import GpuClock
from gpuadvisor.domain.kernel_records import KernelResult, Record
from gpuadvisor.domain.kernels import Kernel, declared
from gpuadvisor.domain.study import TrialState
from gpuadvisor.interruption import stoppable
from gpuadvisor.storage.kernel_caches import read
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.kernels.options import KernelOptions, Progress
from gpuadvisor.tuning.kernels.replaying import replay
from gpuadvisor.tuning.kernels.study import tune_kernels

EXAMPLES = Path(__file__).parents[1] / "examples" / "kernels"
SHARE = 0.15
"""Part of the points that a search may evaluate."""
REPLAYED_SEEDS = 20
ROUNDS = 200
IN_HELION = ("softmax", "layer_norm")
"""Kernels of which `helion_kernels.py` has a version."""


def main() -> None:
    """Do what is asked for, one kernel and problem after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kernel", required=True, help="name of an example, such as transpose")
    parser.add_argument("--problem", type=int, default=0)
    parser.add_argument("--brute-force", action="store_true")
    parser.add_argument("--search", metavar="SEEDS", type=int, default=0)
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--device", help="GPU that --replay is of, where that is not here")
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("kernel_spaces"))
    parser.add_argument("--rows", type=Path, default=Path("kernel_examples.jsonl"))
    parser.add_argument("--budget", help="most time for --brute-force in one run, such as 8m")
    parser.add_argument("--jobs", type=int, help="processes that compile for --brute-force")
    args = parser.parse_args()
    device = args.device or _device_here()
    file = EXAMPLES / f"{args.kernel}.py"
    words = "".join(c if c.isalnum() else "_" for c in device)
    space = args.folder / f"{args.kernel}-{args.problem}-{words}.json"
    options = KernelOptions(_alone(file, args.problem, args.folder), sys.executable)
    row = {"kernel": args.kernel, "problem": args.problem, "device": device}
    done = _done(args.rows, row)
    if args.brute_force and not ("brute_force" in done and space.is_file()):
        found = _brute_force(replace(options, jobs=args.jobs), space, args.budget)
        _add(args.rows, {**row, **found})
        if _has_points_left(found):  # what is compared with the best would mean nothing
            sys.exit(f"{args.kernel} has points left: begin it again")
    for seed in range(args.search):
        if f"search {seed}" not in done:
            _add(args.rows, {**row, **_search(options, space, seed)})
    if args.replay and "replayed" not in done:
        _add(args.rows, {**row, **_replayed(read(space))})
    if args.beside and "beside" not in done:
        _add(args.rows, {**row, **_beside(args.kernel, file, args.problem, space, options)})


def _device_here() -> str:
    import torch

    return torch.cuda.get_device_name(0)


def _done(rows: Path, row: dict[str, Any]) -> set[str]:
    """Return what a file of rows has of this kernel, problem and device: a search with its seed."""
    found = set()
    for line in rows.read_text("utf-8").splitlines() if rows.is_file() else ():
        each = json.loads(line)
        if row.items() <= each.items() and not _has_points_left(each):
            found.add(f"search {each['seed']}" if each["what"] == "search" else each["what"])
    return found


def _has_points_left(row: dict[str, Any]) -> bool:
    return row["what"] == "brute_force" and row["evaluated"] < row["points"]


def _alone(file: Path, problem: int, folder: Path) -> Path:
    """Return a file that declares the kernel for one of its problems."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{file.stem}_{problem}.py"
    made.write_text(
        "import runpy\nfrom dataclasses import replace\n"
        "from gpuadvisor.domain.kernels import declared\n"
        f"runpy.run_path({str(file)!r}, run_name='__gpuadvisor__')\n"
        "(kernel,) = declared()\n"
        f"replace(kernel, problems=[kernel.problems[{problem}]])\n"
    )
    return made


def _brute_force(options: KernelOptions, space: Path, budget: str | None) -> dict[str, Any]:
    limit = BudgetLimit.parse(budget) if budget else None
    asked = replace(options, strategy="all", record=space, budget=limit)
    before = len(read(space).evaluations) if space.is_file() else 0
    began_s = time.monotonic()
    with stoppable() as stop:
        (result,) = tune_kernels(asked, _Counted(before), stop.requested).results
    wall_s = time.monotonic() - began_s
    known = len(result.evaluations)
    best = min(_times(read(space)).values())
    print(f"{known:,} of {result.points:,} points are known; best {best:.5g} ms")
    return {
        "what": "brute_force",
        "points": result.points,
        "evaluated": known,
        "states": result.counts,
        "best_ms": best,
        "default_ms": _times(read(space)).get(_key(result.default)),
        "wall_s": wall_s,
        "new_points_a_s": (known - before) / wall_s,
        "compile_ms": median(e.compile_ms for e in result.evaluations),
        "check_ms": median(e.check_ms for e in result.evaluations),
        "timing_ms": median(e.timing_ms for e in result.evaluations),
    }


def _search(options: KernelOptions, space: Path, seed: int) -> dict[str, Any]:
    record = read(space)
    times = _times(record)
    points = len(record.evaluations)
    trials = max(1, int(SHARE * points))
    own = space.with_suffix(f".search{seed}.json")
    own.unlink(missing_ok=True)
    asked = replace(
        options, budget=BudgetLimit(trials=trials), seed=seed, record=own, strategy="model"
    )
    began_s = time.monotonic()
    result = _tuned(asked)
    found = result.best or result.default
    best = min(times.values())
    ratio = times.get(_key(found), float("nan")) / best
    print(f"seed {seed}: {len(result.evaluations)} of {points:,}, {ratio - 1:+.2%} from the best")
    return {
        "what": "search",
        "seed": seed,
        "points": points,
        "evaluated": len(result.evaluations),
        "found": dict(found),
        "from_best": ratio - 1,
        "verdict": str(result.verdict),
        "speedup": None if result.speedup is None else result.speedup.ratio,
        "default_ms": result.default_ms,
        "best_ms": result.best_ms,
        "gb_per_s": _rate(result.useful_bytes, result.best_ms),
        "gflop_per_s": _rate(result.useful_flops, result.best_ms),
        "choosing_s": result.search_s,
        "wall_s": time.monotonic() - began_s,
    }


def _tuned(options: KernelOptions) -> KernelResult:
    """Search to the end; KeyboardInterrupt where the user stops it: half a search is no row."""
    with stoppable() as stop:
        (result,) = tune_kernels(options, Progress(), stop.requested).results
    if stop.requested():
        raise KeyboardInterrupt
    return result


def _replayed(record: Record) -> dict[str, Any]:
    trials = max(1, int(SHARE * len(record.evaluations)))
    found = replay(record, ["model", "random"], range(REPLAYED_SEEDS), trials)
    rows: dict[str, Any] = {"what": "replayed", "evaluations": trials, "seeds": REPLAYED_SEEDS}
    for each in found.replayed:
        near = [min(search) <= 1.03 * found.best_ms for search in each.searches]
        rows[each.strategy] = {
            "score": each.score,
            "within_3_pct": sum(near) / len(near),
            "median_evaluations_to_5_2_1_pct": list(each.evaluations),
        }
        print(f"{each.strategy}: {sum(near)} of {len(near)} searches within 3 % of the best")
    return rows


def _beside(
    name: str, file: Path, problem: int, space: Path, options: KernelOptions
) -> dict[str, Any]:
    import torch

    record = read(space)
    row: dict[str, Any] = {"what": "beside", "search_s": {}}
    quick = _quickly(options, space) if name in IN_HELION else None
    runpy.run_path(str(file), run_name="__gpuadvisor__")
    (kernel,) = declared()
    sizes = dict(kernel.problems[problem])
    torch.cuda.set_stream(torch.cuda.Stream())
    best = min(
        (e for e in record.evaluations if e.state is TrialState.COMPLETE),
        key=lambda e: e.time_ms or float("inf"),
    )
    arguments = Arguments(kernel, {**sizes, **kernel.start}, 0)
    target = Target("".join(map(str, torch.cuda.get_device_capability())))
    sides: dict[str, Callable[[], object]] = {}
    points = {"default": kernel.start, "best": dict(best.point)}
    if quick is not None:
        points["quick"], row["search_s"]["quick"] = quick
    row["points"] = points
    for side, point in points.items():
        launchable = build(kernel, {**sizes, **point}, target)
        sides[side] = partial(launchable.launch, arguments.values)
    operation = _torch(kernel, name, arguments)
    expected = arguments.expected()
    if operation is not None:
        began_s = time.monotonic()
        compiled = torch.compile(operation)
        compiled()
        torch.cuda.synchronize()
        row["search_s"]["torch.compile"] = time.monotonic() - began_s
        others = {"torch": operation, "torch.compile": compiled}
        if name in IN_HELION:
            others |= _in_helion(name, arguments.values, row)
        for side, launch in others.items():
            wrong = difference([launch().contiguous()], expected, kernel.tolerance)
            row[f"{side}_differs"] = wrong
        sides |= others
    useful_bytes = kernel.value("bytes", kernel.bytes, {**sizes, **kernel.start})
    sides["copy"] = _copy(useful_bytes)
    for launch in sides.values():
        for _ in range(3):
            launch()
    import random

    rounds = GpuClock().rounds(list(sides.values()), ROUNDS, random.Random(0))
    row["ms"] = {side: median(times) for side, times in zip(sides, rounds, strict=True)}
    row["bytes"] = useful_bytes
    row["gb_per_s"] = {side: _rate(useful_bytes, ms) for side, ms in row["ms"].items()}
    row["of_copy"] = row["ms"]["copy"] / row["ms"]["best"]
    took = {side: f" after {s:.0f} s of search" for side, s in row["search_s"].items()}
    print(", ".join(f"{side} {ms:.5g} ms{took.get(side, '')}" for side, ms in row["ms"].items()))
    print(f"{row['of_copy']:.0%} of the bandwidth of a copy that moves as many bytes")
    return row


def _quickly(options: KernelOptions, space: Path) -> tuple[dict[str, Any], float]:
    """Return what a search at the quick effort finds, and the seconds with its proof and its start.

    It knows nothing of the points that were evaluated before.
    """
    own = space.with_suffix(".quick.json")
    own.unlink(missing_ok=True)
    began_s = time.monotonic()
    result = _tuned(replace(options, effort="quick", record=own))
    return dict(result.best or result.default), time.monotonic() - began_s


def _in_helion(name: str, given: list[Any], row: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return Helion's version as its own search leaves it; none, and the row says why, where it is
    not installed or its search fails.
    """
    try:
        import helion_kernels

        launch, about = helion_kernels.searched(name, given)
    except Exception as error:
        row["helion"] = f"{type(error).__name__}: {error}"
        print(f"no Helion: {row['helion']}")
        return {}
    row["search_s"]["helion"] = about.pop("search_s")
    row["helion"] = about
    return {"helion": launch}


def _copy(moved_bytes: int) -> Callable[[], object]:
    """Return torch's copy within the device that reads half of so many bytes, and writes half."""
    import torch

    source = torch.ones(moved_bytes // 2, dtype=torch.uint8, device="cuda")
    goal = torch.empty_like(source)
    return lambda: goal.copy_(source)


def _torch(kernel: Kernel, name: str, arguments: Arguments) -> Callable[[], Any] | None:
    """Return what torch has for the same work, on the same arguments."""
    import torch

    given = arguments.values
    if name == "softmax":
        return lambda: torch.softmax(given[1], 1)
    if name == "layer_norm":
        _, values, weights, biases, _, columns, epsilon = given
        return lambda: torch.nn.functional.layer_norm(values, (columns,), weights, biases, epsilon)
    if name == "attention":
        _, queries, keys, values, _, scale = given
        attention = torch.nn.functional.scaled_dot_product_attention
        return lambda: attention(
            queries[None], keys[None], values[None], is_causal=True, scale=scale
        )[0]
    if name == "transpose":
        return lambda: given[0].T.contiguous()
    if name == "reduction":
        return lambda: given[0].sum().reshape(1)
    if name == "matmul":
        return lambda: given[0] @ given[1]
    if name == "matmul_bf16":
        return lambda: torch.mm(given[1], given[2])
    if name == "prefix_sum":
        return lambda: given[0].cumsum(0, dtype=torch.int32)
    return None


class _Counted(Progress):
    """Says how far a brute force is."""

    def __init__(self, before: int) -> None:
        self._count = before

    def evaluated(self, evaluation: Any) -> None:
        self._count += 1
        if self._count % 100 == 0:
            print(f"{self._count:,} points", flush=True)


def _times(record: Record) -> dict[tuple[Any, ...], float]:
    """Return the time of each point, or its ratio to the default in turns, whichever says more.

    Clocks drift, which the ratio does not see; and what disturbs both by as many microseconds makes
    the ratio of the faster one too good, which its own time is not.
    """
    complete = [e for e in record.evaluations if e.state is TrialState.COMPLETE and e.time_ms]
    defaults = [median(e.default_ms) for e in complete if e.default_ms]
    usual = median(defaults) if defaults else 0.0
    return {_key(e.point): max(e.time_ms or 0.0, usual / (e.gain or 1.0)) for e in complete}


def _key(point: Any) -> tuple[Any, ...]:
    return tuple(sorted(point.items()))


def _rate(amount: float | None, time_ms: float | None) -> float | None:
    return None if not amount or not time_ms else amount / time_ms / 1e6


def _add(rows: Path, row: dict[str, Any]) -> None:
    with rows.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
