"""Hold the gradients of a public script with its own Triton kernels against those of float64.

    python benchmarks/lookahead_float64.py FOLDER [--steps 0,4,60]

FOLDER is that of lucidrains/lookahead-keys-attention, as `triton_in_scripts.py --fetch` leaves it,
with its data. Its attention has a plain implementation as well, which is what computes in float64.
Of the same weights and batches: the kernels as the script launches them, with the blocks of
`triton_plans/lookahead_keys.toml`, and as the script launches them but in float32, which is the
reference of a rehearsal. Prints relative errors of all gradients together and of the worst
parameter's, as rows of Markdown.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuadvisor.tuners.knobs._triton.launches import Kernel, parse_lines
from gpuadvisor.tuners.knobs._triton.widened import Widened
from gpuadvisor.tuning.plans.file import read_plan

PLAN = Path(__file__).with_name("triton_plans") / "lookahead_keys.toml"
BEGIN_OF_LOOP = "# training\n\nfor i in"
PARTS = 4
"""Batches whose gradients are added up, as the script does."""
Gradients = list[Any]


class _Launches:
    """Stands in the place of a kernel, and launches it in another way."""

    def __init__(self, kernel: Any, values: dict[str, int] | None) -> None:
        self._kernel = kernel
        self._values = values
        """Blocks and options; None for float32."""

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> None:
            if self._values is not None:
                self._kernel[grid](*args, **{**kwargs, **self._values})
                return
            wide = Widened(Kernel.of(self._kernel), self._kernel, sys.exit)
            wide.changed_run(*args, grid=grid, warmup=False, **kwargs)

        return launch


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", default="0,4,60", help="after how many, separated by commas")
    options = parser.parse_args()
    os.chdir(options.folder)
    sys.path.insert(0, ".")
    import torch

    torch.manual_seed(0)
    text = Path("train_triton.py").read_text()
    script: dict[str, Any] = {"__name__": "script"}
    exec(text[: text.index(BEGIN_OF_LOOP)], script)
    import lookahead_keys_attention.lookahead_keys_attention_triton as kernels

    lines = parse_lines(str(read_plan(PLAN).settings["triton_kernels"]))
    planned = {line.kernel.partition("@")[0].rpartition(".")[2]: line.values for line in lines}
    own = {name: getattr(kernels, name) for name in planned}
    sides: dict[str, dict[str, Any]] = {
        "the script's own": own,
        "the plan's": {name: _Launches(own[name], dict(planned[name])) for name in own},
        "in float32": {name: _Launches(own[name], None) for name in own},
    }
    model, loader, optimizer = (script[name] for name in ("model", "train_loader", "optim"))

    def add_up(batches: Sequence[Any]) -> None:
        model.train()
        for batch in batches:
            (model(batch, return_loss=True) / PARTS).backward()

    def gradients(batches: Sequence[Any], used: dict[str, Any] | None) -> Gradients:
        """Return the gradients, in float64; without kernels they are computed so, too."""
        for name, kernel in (used or {}).items():
            setattr(kernels, name, kernel)
        plain = [each for each in model.modules() if hasattr(each, "use_triton")]
        for each in plain:
            each.use_triton = used is not None
        model.zero_grad()
        kept = [parameter.detach().clone() for parameter in model.parameters()]
        if used is None:
            model.double()
        add_up(batches)
        found = [p.grad.double() for p in model.parameters() if p.grad is not None]
        model.float()
        for each in plain:
            each.use_triton = True
        for name, kernel in own.items():
            setattr(kernels, name, kernel)
        model.zero_grad()
        for parameter, value in zip(model.parameters(), kept, strict=True):
            parameter.data.copy_(value)
        return found

    def apart(ones: Gradients, others: Gradients) -> float:
        squares = sum(float((a - b).square().sum()) for a, b in zip(ones, others, strict=True))
        return (squares / sum(float(b.square().sum()) for b in others)) ** 0.5

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| After steps | Kernels | All gradients | Worst parameter |\n|---|---|---|---|")
    done = 0
    for steps in map(int, options.steps.split(",")):
        for _ in range(steps - done):
            add_up([next(loader) for _ in range(PARTS)])
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        done = steps
        batches = [next(loader) for _ in range(PARTS)]
        true = gradients(batches, None)
        for name, used in sides.items():
            found = gradients(batches, used)
            worst = max(apart([a], [b]) for a, b in zip(found, true, strict=True))
            print(f"| {steps} | {name} | {apart(found, true):.2%} | {worst:.2%} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
