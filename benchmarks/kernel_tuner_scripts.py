"""Runs a script for Kernel Tuner as far as a machine without a GPU goes, and says how far.

    python benchmarks/kernel_tuner_scripts.py SCRIPT.py [ARGUMENTS...] [--points 6]
    python benchmarks/kernel_tuner_scripts.py NOTEBOOK.ipynb

`tune_kernel` is gpuadvisor's, as after the one changed import; of `run_kernel`, which is Kernel
Tuner's own and needs a GPU, come the arguments as they are. Each call is written for the process
that runs kernels, described there, and some of its points are compiled by NVRTC for compute
capability 9.0. Prints a line a call: how many points there are, how many of those tried compile,
and the first reason of those that do not; or with what sentence it is refused. No call is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

import gpuadvisor.kernel_tuner as ours
from gpuadvisor.collectors.kernels.runner import KernelProcess
from gpuadvisor.errors import AdvisorError
from gpuadvisor.tuning.kernels.kernel_tuner_call import Call, written

CAPABILITY = "90"


class Tried(Exception):  # noqa: N818 - how a call ends here, in words
    """A call went as far as it goes."""


def tried(call: Call, points: int) -> str:
    """Return what becomes of a call."""
    found = call.points()
    default = call.default(found)[0]
    with tempfile.TemporaryDirectory(prefix="called-") as folder:
        file = written(Path(folder), call, found, default)
        with KernelProcess(sys.executable, file) as process:
            (described,) = process.describe()
            launchable = described["problems"][0]["points"]
            step = max(1, len(launchable) // points)
            chosen = [default, *(dict(zip(call.parameters, p, strict=True))
                                 for p in launchable[::step])][:points]  # fmt: skip
            answers = [process.compile(0, 0, point, CAPABILITY) for point in chosen]
    failed = [each["reason"] for each in answers if not each.get("ahead")]
    said = f"{len(found):,} points, {len(chosen) - len(failed)} of {len(chosen)} compile"
    return f"{said}; {failed[0]}" if failed else said


def main() -> None:
    """Run the script with our `tune_kernel` in place of Kernel Tuner's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("script", type=Path)
    parser.add_argument("--points", type=int, default=6, help="tried of each call (default: 6)")
    chosen, rest = parser.parse_known_args()
    import kernel_tuner

    def tune_kernel(name: str, *given: Any, **options: Any) -> tuple[list[Any], dict[str, Any]]:
        try:
            ours.tune_kernel(name, *given, **options)
        except Tried as how:
            print(f"== {name}: taken: {how}", flush=True)
        except AdvisorError as error:
            print(f"== {name}: refused: {error}", flush=True)
        return [], {}

    def tuned(call: Call, *_: Any) -> Any:
        raise Tried(tried(call, chosen.points))

    ours._tuned = tuned  # type: ignore[assignment]
    kernel_tuner.tune_kernel = tune_kernel
    kernel_tuner.run_kernel = lambda name, source, size, arguments, *_, **__: list(arguments)
    script = chosen.script.absolute()
    os.chdir(script.parent)
    sys.argv = [str(script), *rest]
    sys.path.insert(0, str(script.parent))
    try:
        if script.suffix == ".ipynb":
            notebook(json.loads(script.read_text("utf-8")))
        else:
            runpy.run_path(str(script), run_name="__main__")
    except Exception as error:
        print(f"== the script ends by itself: {type(error).__name__}: {error}")


def notebook(document: dict[str, Any]) -> None:
    """Run the cells of a notebook; one that writes a file writes it, and shell lines are left."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in document["cells"]:
        text = "".join(cell["source"]).lstrip("\n")
        if cell["cell_type"] != "code":
            continue
        if text.startswith("%%writefile"):
            head, _, body = text.partition("\n")
            Path(head.split()[-1]).write_text(body, "utf-8")
            continue
        lines = [line for line in text.splitlines() if not line.startswith(("%", "!", "|"))]
        try:
            exec("\n".join(lines), names)
        except Exception as error:
            print(f"== a cell ends by itself: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
