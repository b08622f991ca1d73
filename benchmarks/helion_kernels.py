"""Softmax and layer norm in Helion, to stand beside those of `examples/kernels`.

Each is written as Helion's users would: a tile of rows, whole rows in the words of torch. How many
rows, whether a row is taken in pieces, warps, stages and the rest are what Helion searches.

    HELION_INTERPRET=1 python benchmarks/helion_kernels.py    compares both with torch, on a CPU

Helion 1.4.0 is the newest that can be imported with torch 2.11: 1.5.1 imports what that has not.
"""

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import helion
import helion.language as hl
import torch

EFFORT = "quick"


@helion.kernel(autotune_effort=EFFORT)
def softmax(values: torch.Tensor) -> torch.Tensor:
    """Softmax of each row."""
    rows, _ = values.size()
    out = torch.empty_like(values)
    for row in hl.tile(rows):
        part = values[row, :].to(torch.float32)
        raised = torch.exp(part - torch.amax(part, dim=1, keepdim=True))
        out[row, :] = (raised / torch.sum(raised, dim=1, keepdim=True)).to(out.dtype)
    return out


@helion.kernel(autotune_effort=EFFORT)
def layer_norm(
    values: torch.Tensor, weights: torch.Tensor, biases: torch.Tensor, epsilon: float
) -> torch.Tensor:
    """Layer normalization of each row."""
    rows, _ = values.size()
    out = torch.empty_like(values)
    for row in hl.tile(rows):
        part = values[row, :].to(torch.float32)
        away = part - torch.mean(part, dim=1, keepdim=True)
        scale = torch.rsqrt(torch.mean(away * away, dim=1, keepdim=True) + epsilon)
        scaled = away * scale * weights[:].to(torch.float32) + biases[:].to(torch.float32)
        out[row, :] = scaled.to(out.dtype)
    return out


def arguments_of(name: str, given: list[Any]) -> tuple[Any, ...]:
    """Return the arguments here of those that the example's kernel takes."""
    if name == "softmax":
        return (given[1],)
    _, values, weights, biases, _, _, epsilon = given
    return values, weights, biases, epsilon


def searched(name: str, given: list[Any]) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Let Helion search, and return what launches what it found, and what it cost."""
    kernel = {"softmax": softmax, "layer_norm": layer_norm}[name]
    arguments = arguments_of(name, given)
    began_s = time.monotonic()
    found = kernel.autotune(arguments, force=True)  # whatever an earlier search left in its cache
    kernel(*arguments)
    torch.cuda.synchronize()
    about = {
        "search_s": time.monotonic() - began_s,
        "version": version("helion"),
        "effort": EFFORT,
        "config": str(found),
    }
    return lambda: kernel(*arguments), about


def main() -> None:
    """Compare both with torch, where this machine has no GPU either."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    values, weights, biases = (
        torch.randn(*shape, device=device).bfloat16() for shape in ((37, 1000), (1000,), (1000,))
    )
    wide = values.float()
    normalized = torch.nn.functional.layer_norm(
        wide, (1000,), weights.float(), biases.float(), 1e-5
    )
    for name, found, expected in (
        ("softmax", softmax(values), torch.softmax(wide, 1)),
        ("layer_norm", layer_norm(values, weights, biases, 1e-5), normalized),
    ):
        torch.testing.assert_close(found.float(), expected, rtol=2e-2, atol=1e-2)
        print(f"{name}: as torch has it")


if __name__ == "__main__":
    main()
