"""Compares our occupancy with NVIDIA's `cuda_occupancy.h` on random launches.

pip download --no-deps nvidia-cuda-runtime && unzip nvidia_cuda_runtime-*.whl
python benchmarks/occupancy_oracle.py nvidia/cu13/include/cuda_occupancy.h

The header is NVIDIA's and may not be passed on: it stays where you put it. `--write FILE` keeps
some of its answers, for the tests.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from gpuadvisor.rules.facts.gpu_specs import ARCHITECTURES, KIB, WARP_THREADS
from gpuadvisor.rules.facts.occupancy import LaunchConfig, Occupancy, fit

SOURCE = Path(__file__).with_suffix(".c")
NO_LIMIT = 2**31 - 1
ASKED = (
    "major", "minor", "threads", "registers", "static_bytes", "dynamic_bytes",
    "carveout_percent", "barriers", "virtual_resources",
)  # fmt: skip
LIMITS = ("warps", "registers", "shared_memory", "blocks", "barriers", "virtual_resources")
ANSWERED = (
    "error", "active_blocks", *(f"{name}_blocks" for name in LIMITS),
    "limiting_factors", "allocated_registers", "allocated_shared_bytes",
)  # fmt: skip
FACTORS = {
    "warps": 1, "registers": 2, "shared_memory": 4, "blocks": 8, "barriers": 16,
    "virtual_resources": 32,
}  # fmt: skip
Row = Sequence[int]


def main() -> None:
    """Compare, say how many differ, and keep answers where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("header", type=Path, help="cuda_occupancy.h")
    parser.add_argument("--number", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, metavar="FILE.json.gz")
    args = parser.parse_args()
    launches = [launch(random.Random(args.seed * 10**9 + n)) for n in range(args.number)]
    answers = ask(args.header, launches)
    began_s = time.perf_counter()
    wrong = [(a, b) for a, b in zip(launches, answers, strict=True) if differs(a, b)]
    seconds = time.perf_counter() - began_s
    print(f"{len(launches):,} launches on {len(ARCHITECTURES)} compute capabilities, of which")
    print(f"{sum(answer[1] == 0 for answer in answers):,} impossible: {len(wrong):,} differ")
    print(f"our calculator took {1e6 * seconds / len(launches):.1f} us each")
    for asked, answered in wrong[:5]:
        print(dict(zip(ASKED, asked, strict=True)), dict(zip(ANSWERED, answered, strict=True)))
    if args.write:
        keep(args.write, args.header, launches, answers)
    raise SystemExit(bool(wrong))


def launch(chance: random.Random) -> Row:
    """Return a launch: about half of them odd, the others as kernels are."""
    capability = chance.choice(list(ARCHITECTURES))
    usual = chance.random() < 0.5
    threads = 32 * chance.randint(1, 32) if usual else chance.randint(1, 1100)
    most = min(255, 65536 // threads) if usual else 300
    registers = chance.randint(0, most)
    registers += registers == 256  # the header lets it pass, the instruction set has no such code
    largest = ARCHITECTURES[capability].shared_bytes_per_block
    total = chance.choice((0, chance.randint(0, 8 * KIB), chance.randint(0, largest + 2 * KIB)))
    static = chance.randint(0, min(total, 48 * KIB))
    carveout = -1 if usual else chance.randint(0, 100)
    barriers = chance.choice((0, 1, chance.randint(0, 16)))
    resources = chance.choice((0, 0, chance.randint(0, 16)))
    return (*capability, threads, registers, static, total - static, carveout, barriers, resources)


def ask(header: Path, launches: Sequence[Row]) -> list[Row]:
    """Return the header's answers; it is compiled on the spot."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "oracle")
        command = ["cc", "-O1", "-I", str(header.resolve().parent), "-o", str(program), str(SOURCE)]
        subprocess.run(command, check=True)
        text = "\n".join(" ".join(map(str, _with_device(asked))) for asked in launches)
        done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]


def differs(asked: Row, answered: Row) -> bool:
    """Say whether ours is another answer, in any of its parts."""
    error, blocks, *limits, factors, registers, shared = answered
    ours = calculate(asked)
    own_limits = [NO_LIMIT if b is None else b for b in (ours.limits[name] for name in LIMITS)]
    # The header looks at barriers last, and leaves the bits that it had set before.
    named = blocks < min(b for name, b in zip(LIMITS, limits, strict=True) if name != "barriers")
    own_factors = factors if named else sum(FACTORS[name] for name in ours.limiters)
    return (error, blocks, limits, factors, registers, shared) != (
        0,
        ours.blocks,
        own_limits,
        own_factors,
        ours.registers_per_block,
        ours.shared_bytes_per_block,
    )


def calculate(asked: Row) -> Occupancy:
    """Return our answer."""
    major, minor, threads, registers, static, dynamic, percent, barriers, resources = asked
    sm = ARCHITECTURES[major, minor]
    carveout = None if percent < 0 else percent * sm.shared_bytes // 100
    return fit(
        sm, LaunchConfig(threads, registers, static + dynamic, carveout, barriers, resources)
    )


def keep(path: Path, header: Path, launches: Sequence[Row], answers: Sequence[Row]) -> None:
    """Write launches and the header's answers."""
    version = next((part for part in header.resolve().parts if part.startswith("cu1")), "")
    document = {
        "source": f"cuda_occupancy.h of NVIDIA's nvidia-cuda-runtime ({version}), asked by "
        "benchmarks/occupancy_oracle.py; only its answers are here",
        "columns": [*ASKED, *ANSWERED],
        "rows": [[*a, *b] for a, b in zip(launches, answers, strict=True)],
    }
    text = json.dumps(document, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{path}: {path.stat().st_size:,} bytes")


def _with_device(asked: Row) -> Row:
    sm = ARCHITECTURES[asked[0], asked[1]]
    device = (
        sm.max_warps * WARP_THREADS,
        sm.shared_bytes,
        sm.shared_bytes_per_block,
        sm.shared_reserved_bytes,
    )
    return (*asked[:2], *device, *asked[2:])


if __name__ == "__main__":
    main()
