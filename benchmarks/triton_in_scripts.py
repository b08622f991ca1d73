"""Tune the Triton kernels of public scripts that train with their own, one after the other.

    python benchmarks/triton_in_scripts.py FOLDER --fetch            where there is a network
    python benchmarks/triton_in_scripts.py FOLDER [--only NAME,...] [--each 240] [--seconds 540]

`triton_scripts.toml` names the scripts, each with what is right, written down before. Their code is
fetched to FOLDER, their data are made there. `gpuadvisor tune` runs each, unmodified, with no knob
but `triton_kernels`, after a first start by itself where the list says so. As each ends,
`triton-NAME.json` and a row of Markdown, `triton-NAME.md`, stand in `--kept` (FOLDER by default):
the same command goes on with those that have none, and tries those again that needed more time than
they had, where there is more now.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fetch_public import SOURCE, Script, fetch, make, scripts

from gpuadvisor.tuning.budgeting.budget import OVERDRAFT

SCRIPTS = Path(__file__).with_name("triton_scripts.toml")
LEAST_S = 90.0
"""Time below which no further study begins."""
OVER_S = 45.0
"""Time that is left for a study to go beyond its budget: its first look of a proof, and its end."""
END_S = 30.0
"""Time that a study has to end when it is told to."""
QUIET_S = 20.0
"""Time without a new kernel on disk after which a script has compiled all that its steps need: one
configuration of an autotuner takes 1 to 5 s."""
STARTING_S = 60.0
"""Time within which a script writes its first kernel, where there is one that it has not yet."""
LOOK_S = 0.2
"""Time from one look at the kernels on disk to the next."""


def main() -> int:
    """Tune what the time allows; 1 where a study failed, or none was begun."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where code and data are")
    parser.add_argument("--fetch", action="store_true", help="fetch the code only")
    parser.add_argument("--only", help="names, separated by commas; all by default")
    parser.add_argument("--scripts", type=Path, default=SCRIPTS, help="another list of them")
    parser.add_argument("--kept", type=Path, help="where results go")
    parser.add_argument("--each", type=float, default=240.0, help="budget of a study, in seconds")
    parser.add_argument("--seconds", type=float, default=540.0, help="time for all that is begun")
    parser.add_argument("--from", dest="source", default=SOURCE, help="where repositories are")
    options = parser.parse_args()
    end_s = time.monotonic() + options.seconds
    root = options.folder.absolute()
    known = scripts(root, options.scripts)
    names = options.only.split(",") if options.only else list(known)
    if unknown := set(names) - known.keys():
        parser.error(f"nothing is named {', '.join(sorted(unknown))}")
    kept = (options.kept or root).absolute()
    kept.mkdir(parents=True, exist_ok=True)
    failed, done = [], 0
    results = {name: kept / f"triton-{name}.json" for name in names}
    for name in sorted(names, key=lambda name: results[name].exists()):
        fetch(root, known[name].repository, options.source, options.scripts)
        result = results[name]
        budget_s = min(options.each, end_s - time.monotonic() - OVER_S)
        if options.fetch or is_settled(result, budget_s):
            done += 1
            continue
        make(known[name], small=False)
        start_once(known[name], end_s - time.monotonic())
        budget_s = min(options.each, end_s - time.monotonic() - OVER_S)
        if budget_s < LEAST_S or is_settled(result, budget_s):
            print(f"{name}: no time is left for it", file=sys.stderr)
            break
        print(f"{name}: {budget_s:.0f} s", flush=True)
        if study(known[name], result, budget_s, end_s - time.monotonic()):
            done += 1
            written = row(known[name], json.loads(result.read_text("utf-8")))
            result.with_suffix(".md").write_text(written, "utf-8")
            print(written, flush=True)
        else:
            failed.append(name)
    return int(bool(failed) or not done)


def environment(script: Script) -> dict[str, str]:
    """Return the variables of a script's start."""
    found = {**os.environ, "GPUADVISOR_HOME": str(script.root / "gpuadvisor-home")}
    before = found.get("PYTHONPATH")
    found |= script.environment
    if before and "PYTHONPATH" in script.environment:
        found["PYTHONPATH"] += f"{os.pathsep}{before}"
    return found


def is_settled(result: Path, budget_s: float) -> bool:
    """Say whether there is a result that a study with this budget has nothing to add to: one that
    needed no more time than it had, or had as much."""
    if not result.exists():
        return False
    told = json.loads(result.read_text("utf-8"))
    return not told.get("needed_s") or budget_s <= told.get("budget_s", told["wall_s"])


def start_once(script: Script, left_s: float) -> None:
    """Start a script that compiles much until it has compiled it, as its user has done before:
    Triton keeps what it made, and so do we that all of it is there.

    A start that is cut off after `left_s` goes on in the next call.
    """
    first_s = script.about.get("first_s")
    about = environment(script)
    home = Path(about.get("TRITON_HOME", Path.home()), ".triton", "cache")
    made = Path(about.get("TRITON_CACHE_DIR", home))
    whole = made / f"whole-{script.about['name']}"
    if not first_s or whole.exists():
        return
    print(f"{script.about['name']}: some {first_s} s for what it compiles", flush=True)
    began = time.time()
    run = subprocess.Popen(
        [sys.executable, *script.started, *script.about["args"]],
        cwd=script.folder,
        env=about,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while run.poll() is None and time.time() < began + left_s:
        last = newest(made)
        if time.time() > QUIET_S + (last if last > began else began + STARTING_S):
            whole.touch()
            break
        time.sleep(LOOK_S)
    if run.poll() is None:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()


def newest(made: Path) -> float:
    """Return when the last kernel was written, in seconds since the epoch; 0 without any."""
    return max((each.stat().st_mtime for each in made.glob("*")), default=0.0)


def study(script: Script, result: Path, budget_s: float, left_s: float) -> bool:
    """Tune one script, and return whether there is a result; what else it says goes beside it.

    Where its runs take long for its budget, a proof may take a third of that more: it is ended when
    no time is left for that.
    """
    words = ["--only", "triton_kernels", "--no-profile", "--budget", f"{budget_s:.0f}s", "--json"]
    words += ["--plan", str(result.with_suffix(".plan.toml"))]
    start = [sys.executable, "-m", "gpuadvisor", "tune", *words, *script.started]
    log = result.with_suffix(".log")
    with log.open("w", encoding="utf-8") as said:
        tune = subprocess.Popen(
            [*start, "--", *script.about["args"]],
            cwd=script.folder,
            env=environment(script),
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        try:
            most_s = max(budget_s + OVER_S, (1 + OVERDRAFT) * budget_s + END_S)
            out = tune.communicate(timeout=min(most_s, left_s))[0]
        except subprocess.TimeoutExpired:
            tune.send_signal(signal.SIGINT)
            out = ended(tune)
    if not out.strip():
        last = log.read_text("utf-8").splitlines()[-12:]
        print(f"{script.about['name']}: status {tune.returncode}", *last, sep="\n", file=sys.stderr)
        return False
    told = {**json.loads(out), "budget_s": budget_s}
    result.write_text(json.dumps(told, indent=2), "utf-8")
    return True


def ended(tune: subprocess.Popen[str]) -> str:
    """Return what a study printed that was told to end."""
    try:
        return tune.communicate(timeout=END_S)[0]
    except subprocess.TimeoutExpired:
        tune.kill()
        return tune.communicate()[0]


def row(script: Script, result: Mapping[str, Any]) -> str:
    """Return what a study found as a row of a table, with what it said of each kernel below."""
    step = (result.get("baseline") or {}).get("step_ms") or {}
    cells = [
        f"{script.repository} `{script.about['name']}`",
        f"{step['p50']:.1f} ms" if "p50" in step else "not measured",
        result["verdict"],
        gain(result.get("speedup")),
        (result.get("equivalence") or {}).get("status", "not checked"),
        result["device"]["name"],
    ]
    expected = " ".join(script.about["expected"].split())
    notes = "".join(f"- {note}\n" for note in result["notes"])
    return f"| {' | '.join(cells)} |\n\nRight: {expected}\n\n{notes}"


def gain(speedup: Mapping[str, Any] | None) -> str:
    """Return a gain with its interval, as a cell."""
    if not speedup:
        return "no proof"
    low, high = speedup["ci99_low"], speedup["ci99_high"]
    return f"{speedup['ratio']:.3f}x ({low:.3f}-{high:.3f})"


if __name__ == "__main__":
    sys.exit(main())
