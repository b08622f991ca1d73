"""Triton kernels inside scripts on a real GPU, with the real Triton. Run with `pytest -m gpu`."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gpuadvisor.collectors.devices import list_gpus
from gpuadvisor.collectors.script.request import Command, Limits, RunRequest
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.domain.inquiry import Found
from gpuadvisor.tuners.knobs._triton.launches import parse_lines
from gpuadvisor.tuning.plans.file import read_plan
from tests.integration.runs import triton_kernels_of

pytestmark = pytest.mark.gpu

pytest.importorskip("triton")

SCRIPTS = Path(__file__).parents[1] / "scripts"
LAYERS = ("cuda", "65536", "512")
"""128 MiB a tensor; its column sum has 8 blocks of 64 columns for more than 100 multiprocessors."""

KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < n
    tl.store(out + place, 2 * tl.load(x + place, mask=mask), mask=mask)


@triton.jit
def shift_kernel(x, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < n
    tl.store(out + place, 1 + tl.load(x + place, mask=mask), mask=mask)


@triton.jit
def fatal_kernel(x, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < n
    value = tl.load(x + place, mask=mask)
    if BLOCK == 64:
        tl.store(out + place.to(tl.int64) + 70368744177664, value)  # 2^46: nobody's memory
    tl.store(out + place, value, mask=mask)


def launch(kernel, x, out):
    n = x.numel()
    kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, BLOCK=32)


x = torch.rand(1 << 24, device="cuda")
out, other = torch.empty_like(x), torch.empty_like(x)
model = torch.nn.Linear(8, 8).cuda()
batch = torch.rand(8, 8, device="cuda")
"""

GRAPH = """
launch(scale_kernel, x, out)  # compiled before it is recorded
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    launch(scale_kernel, x, out)
while True:
    graph.replay()
    launch(shift_kernel, x, other)
    model(batch).sum().backward()
"""

COMPILED = """
@torch.compile
def compiled(x):
    out = torch.empty_like(x)
    launch(scale_kernel, x, out)
    return out + 1


while True:
    compiled(x)
    launch(shift_kernel, x, other)
    model(batch).sum().backward()
"""

STYLES = """
@triton.heuristics({"DOUBLED": lambda given: given["factor"] == 2})
@triton.autotune([triton.Config({"BLOCK": block}) for block in (32, 64)], key=["n"])
@triton.jit
def around_kernel(x, out, factor, n, BLOCK: tl.constexpr, DOUBLED: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < n
    value = tl.load(x + place, mask=mask)
    if DOUBLED:
        value = 2 * value
    tl.store(out + place, value, mask=mask)


@triton.jit
def crowded_kernel(x, out, rounds, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place)
    for _ in range(rounds):
        value = 0.5 * value + 0.25
    tl.store(out + place, value)


n = x.numel()
few, to = torch.rand(1 << 18, device="cuda"), torch.empty(1 << 18, device="cuda")
compiled = scale_kernel.warmup(x, out, n, BLOCK=32, grid=(1,))
while True:
    around_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, 2, n)
    crowded_kernel[(16,)](few, to, 1024, BLOCK=16384, num_warps=1)
    compiled[(n // 32, 1, 1)](x, out, n, 32)
    fatal_kernel.run(x, out, n, BLOCK=32, grid=(n // 32,), warmup=False)
    model(batch).sum().backward()
"""

SUMS = """
@triton.jit
def sums_kernel(x, out, rows, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    place = row[:, None] * stride + column[None, :]
    value = tl.load(x + place, mask=row[:, None] < rows, other=0.0)
    tl.atomic_add(out + column, tl.sum(value.to(tl.float32), 0))


# Of 5,120 additions of 0.02 to float16 most are lost from 64 on; the sum is 102.
rows = 10240
many = (0.02 * torch.rand(rows, 64, device="cuda")).half()
sums = torch.empty(64, dtype=torch.float16, device="cuda")
grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]),)
while True:
    for _ in range(4):
        sums.zero_()
        sums_kernel[grid](many, sums, rows, 64, ROWS=2, COLUMNS=64)
    model(batch).sum().backward()
"""

FATAL = """
while True:
    launch(fatal_kernel, x, out)
    launch(shift_kernel, x, other)
    model(batch).sum().backward()
"""

LAUNCHES = """
from time import perf_counter

small, to = torch.rand(64, device="cuda"), torch.empty(64, device="cuda")


def us():
    # Of a few hundred launches, none waits for the GPU's queue.
    best = []
    for _ in range(200):
        torch.cuda.synchronize()
        began = perf_counter()
        for _ in range(100):
            launch(scale_kernel, small, to)
        best.append(1e4 * (perf_counter() - began))
    return min(best)


launch(scale_kernel, small, to)
us()
print("us", us(), flush=True)
"""


def find(folder: Path, text: str, seconds: float = 120.0) -> Found:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(KERNELS + text))
    [device, *_] = list_gpus()
    wanted = RunRequest(
        Command(sys.executable, "script.py", folder=str(folder)),
        Specification(seed=0, schedule=Schedule()),
        device,
        Limits(startup_s=180.0),
    )
    return triton_kernels_of(wanted, seconds)


def alone(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a script as its user does."""
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=folder, check=True
    )


@pytest.mark.timeout(900)
def test_an_unmodified_script_becomes_faster_and_its_results_stay(gpuadvisor, tmp_path):
    script = str(SCRIPTS / "triton_layers.py")
    words = (script, "--only", "triton_kernels", "--budget", "5m", "--json", "--plan", "it.toml")
    run = gpuadvisor("tune", *words, "--", "1000000", *LAYERS)
    assert run.returncode == 0, run.stderr[-3000:]
    result = json.loads(run.stdout)
    assert result["verdict"] in ("faster", "faster_unverified"), result["notes"]
    assert result["equivalence"]["status"] == "equivalent"
    lines = read_plan(tmp_path / "it.toml").settings["triton_kernels"].splitlines()
    assert any(line.startswith("__main__.column_sum_kernel@") for line in lines), lines
    for line in lines:
        if "softmax_kernel" in line:  # its block is its row
            assert "-> BLOCK: 512" in line or "-> BLOCK: 1024" in line or "BLOCK: 2048" in line
    plain = alone(tmp_path, script, "300", *LAYERS)
    planned = gpuadvisor("run", "--plan", "it.toml", script, "--", "300", *LAYERS)
    assert planned.returncode == 0, planned.stderr[-3000:]
    own, fast = (json.loads(each.stdout.splitlines()[-1]) for each in (plain, planned))
    assert fast["loss"] == pytest.approx(own["loss"], rel=1e-3)
    assert fast["step_ms"] < own["step_ms"]


def test_launches_in_a_graph_are_named_and_others_are_tuned(tmp_path):
    found = find(tmp_path, GRAPH)
    assert any(
        "launches of scale_kernel inside a CUDA graph were not seen" in each
        for each in found.sentences
    ), found
    assert found.value is not None, found
    assert "shift_kernel" in found.value
    assert "scale_kernel" not in found.value


def test_launches_in_compiled_code_are_named_and_others_are_tuned(tmp_path):
    found = find(tmp_path, COMPILED, 180.0)
    assert any(
        "launches of scale_kernel inside code that torch compiled" in each
        for each in found.sentences
    ), found
    assert found.value is not None, found
    assert "shift_kernel" in found.value


def test_kernels_are_tuned_however_they_are_launched_or_named(tmp_path):
    found = find(tmp_path, STYLES, 240.0)
    assert found.value is not None, found
    lines = {line.kernel.partition("@")[0]: line for line in parse_lines(found.value)}
    assert lines["__main__.around_kernel"].values["BLOCK"] > 64, "heuristics around an autotuner"
    numbers = lines["__main__.crowded_kernel"]
    assert numbers.arguments["grid"] == "numbers"
    assert numbers.values.keys() == {"num_warps", "num_stages"}, "a loop, and no block"
    # One warp runs on one of a multiprocessor's four schedulers, and 512 elements a thread have no
    # room in its 255 registers.
    assert numbers.values["num_warps"] > 1
    assert any(
        each.startswith("launches of fatal_kernel, scale_kernel without `kernel[grid]`")
        for each in found.sentences
    ), found


def test_sums_in_16_bits_get_larger_blocks_that_lose_less(tmp_path):
    found = find(tmp_path, SUMS, 240.0)
    assert found.value is not None, found
    (line,) = parse_lines(found.value)
    assert line.values["ROWS"] > 2
    assert "COLUMNS" not in line.values
    (said,) = found.sentences
    assert "its sums are rounded otherwise, no less precisely" in said
    assert "COLUMNS held" in said


def test_an_illegal_address_ends_one_process_and_costs_one_launch(tmp_path):
    found = find(tmp_path, FATAL, 240.0)
    assert any(
        each.startswith("fatal_kernel (") and "the script ended as it was tried" in each
        for each in found.sentences
    ), found
    assert found.value is not None, found
    assert "shift_kernel" in found.value
    assert "fatal_kernel" not in found.value


def test_a_look_up_costs_two_microseconds_at_most(gpuadvisor, tmp_path):
    (tmp_path / "launches.py").write_text(KERNELS + LAUNCHES)
    plan = tmp_path / "it.toml"
    # The kernel's digits are those of its text, which only a process that loads it can tell.
    tell = (
        "import sys, runpy; sys.argv = ['launches.py'];"
        "from gpuadvisor.tuners.knobs._triton.launches import Kernel;"
        "names = runpy.run_path('launches.py', run_name='__main__');"
        "print(Kernel.of(names['scale_kernel']).name)"
    )
    said = subprocess.run(
        [sys.executable, "-c", tell], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    name = said.stdout.splitlines()[-1]
    line = f"{name}(x: float32[64], out: float32[64], n: 64, BLOCK: 32) -> BLOCK: 64, num_warps: 2"
    plan.write_text(
        '[plan]\nformat = 2\nscript = "launches.py"\nlevel = "conservative"\n'
        f'objective = "throughput"\n\n[knobs]\ntriton_kernels = "{line}"\n'
    )
    differences = []
    for _ in range(3):
        plain = alone(tmp_path, "launches.py")
        planned = gpuadvisor("run", "--plan", "it.toml", "launches.py")
        assert planned.returncode == 0, planned.stderr[-2000:]
        own, other = (
            float(
                next(each for each in run.stdout.splitlines() if each.startswith("us ")).split()[1]
            )
            for run in (plain, planned)
        )
        differences.append(other - own)
    assert min(differences) <= 2.0, differences
