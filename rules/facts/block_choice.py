"""A block for a kernel that computes one element a thread, without a search: a stated heuristic.

Blocks are ranked by the product of four shares, each between 0 and 1: threads that have an element;
bytes that were asked for among those that move (sectors of 32 bytes); how evenly the blocks fall on
the SMs; and warps on an SM, as far as they hide latency. Among those within `ALIKE` of the best the
one is taken that leaves the fewest SMs idle, whose warps touch the fewest lines of 128 bytes, that
has 128 to 256 threads, and the smallest surface, as neighbours in a block share what they read.
What a kernel computes, reuses or branches on is not looked at; `gpuadvisor tune-kernel` measures.

Sides are in elements, x first, as CUDA has them; x is the side that is contiguous in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from gpuadvisor.domain.kernels import GRID_SIDES
from gpuadvisor.errors import AdvisorError, UsageError
from gpuadvisor.rules.facts.gpu_specs import (
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_BLOCK,
    WARP_THREADS,
    Architecture,
)
from gpuadvisor.rules.facts.occupancy import LaunchConfig, Occupancy, fit

Sides = tuple[int, ...]
"""One to three numbers, x first."""

SECTOR_BYTES, LINE_BYTES = 32, 128
"""What memory moves at least, and what a warp's request is split by (CUDA C++ Programming Guide,
"Device Memory Accesses")."""
ENOUGH_OCCUPANCY = 0.5
"""Share of an SM's warps from which more hide no more latency for most kernels (CUDA C++ Best
Practices Guide, "Calculating Occupancy")."""
USUAL_THREADS = (128, 256)
"""Threads of a block to begin with (the same guide, "Thread and Block Heuristics")."""
ALIKE = 0.98
"""Share of the best score from which blocks count as alike: the shares are no exacter. [own]"""
LONG = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Blocks of one side; others have sides that are powers of two."""
MOST_THREADS = (1024, 1024, 64)
"""Most threads of a block in x, y and z."""


@dataclass(frozen=True)
class Resources:
    """What a kernel takes of an SM, as its compiler or a profiler says; 0 where it is not known."""

    registers_per_thread: int = 0
    shared_bytes_per_block: int = 0
    """That any block takes, static and dynamic."""
    shared_bytes_per_thread: int = 0
    """What comes to that for each thread, for arrays that are as large as the block."""
    most_threads: int = MAX_THREADS_PER_BLOCK
    """Threads of a block that it was compiled for (`__launch_bounds__`)."""

    def shared_bytes(self, threads: int) -> int:
        """Return the shared memory of a block."""
        return self.shared_bytes_per_block + threads * self.shared_bytes_per_thread


@dataclass(frozen=True, repr=False)
class BlockSuggestion:
    """A launch configuration and why it was chosen; as text, the page of the command."""

    block: tuple[int, int, int]
    """Threads in x, y and z."""
    grid: tuple[int, int, int]
    """Blocks in x, y and z."""
    occupancy: Occupancy
    """How the launch fits on an SM."""
    filled: float
    """Share of the threads that have an element."""
    coalesced: float
    """Share of the bytes moved that was asked for, where all threads read their own element."""
    waves: float | None
    """Blocks over those that the GPU holds at once; None where its SMs are not known."""
    reasons: tuple[str, ...]
    alike: tuple[tuple[int, int, int], ...]
    """Other blocks that the same shares do not tell from it, the next best first."""

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    def __repr__(self) -> str:
        sm = self.occupancy.architecture
        alike = f"  as good by these reasons: {', '.join(map(_shown, self.alike))}"
        return "\n".join(
            (
                f"block {_shown(self.block)}, grid {_shown(self.grid)} on {sm.name}",
                *(f"  - {reason}" for reason in self.reasons),
                *([alike] if self.alike else []),
                "  not measured: `gpuadvisor tune-kernel` finds out what is fastest",
            )
        )


@dataclass(frozen=True)
class Problem:
    """What blocks are judged for."""

    sm: Architecture
    sm_counts: tuple[int, ...]
    """SMs that the GPU may have: one number where they are known, several where products of one
    name differ, none where nothing tells."""
    resources: Resources
    shape: Sides
    element_bytes: int

    @property
    def sm_count(self) -> int | None:
        """SMs of the GPU; None where they are not known."""
        return self.sm_counts[0] if len(self.sm_counts) == 1 else None


@dataclass(frozen=True)
class _Candidate:
    block: Sides
    grid: Sides
    fitted: Occupancy
    filled: float
    coalesced: float
    lines: int
    """Lines that a warp touches."""
    idle: int
    """SMs that get no block at all."""
    balance: float
    hidden: float

    @property
    def score(self) -> float:
        return self.filled * self.coalesced * self.balance * self.hidden

    @property
    def preference(self) -> tuple[float, ...]:
        """Order among blocks alike: the smallest first."""
        threads, (least, most) = math.prod(self.block), USUAL_THREADS
        unusual = abs(math.log2(threads / min(max(threads, least), most)))
        surface = sum(1 / side for side in self.block)
        return (self.idle, self.lines, unusual, surface, *(-side for side in self.block))


def choose(problem: Problem) -> BlockSuggestion:
    """Return the block that suits a problem best; AdvisorError where none can be launched."""
    _check(problem)
    candidates = [each for block in _blocks(problem) if (each := _judged(problem, block))]
    if not candidates:
        raise AdvisorError(
            f"no block of this kernel can be launched on {problem.sm.name} for "
            f"{' x '.join(map(str, problem.shape[::-1]))} elements: it takes more registers or "
            "shared memory than an SM has, or needs too large a grid"
        )
    best = max(each.score for each in candidates)
    alike = sorted(
        (each for each in candidates if each.score >= ALIKE * best),
        key=lambda each: each.preference,
    )
    taken = alike[0]
    return BlockSuggestion(
        _three(taken.block),
        _three(taken.grid),
        taken.fitted,
        taken.filled,
        taken.coalesced,
        _waves(problem, taken),
        tuple(_reasons(problem, taken, candidates)),
        tuple(_three(each.block) for each in alike[1:6]),
    )


def _check(problem: Problem) -> None:
    shape = problem.shape
    if not 1 <= len(shape) <= 3 or any(side < 1 for side in shape):
        raise UsageError(f"a shape has one to three sides from 1 on, not {shape}")
    if problem.element_bytes < 1:
        raise UsageError(f"an element has at least 1 byte, not {problem.element_bytes}")
    registers, threads = problem.resources.registers_per_thread, problem.resources.most_threads
    if registers > MAX_REGISTERS_PER_THREAD:
        raise UsageError(
            f"a thread has at most {MAX_REGISTERS_PER_THREAD} registers, not {registers}"
        )
    if threads < WARP_THREADS:
        raise UsageError(
            f"blocks of at most {threads} threads are less than a warp of {WARP_THREADS}: none is "
            "suggested"
        )


def _blocks(problem: Problem) -> Iterator[Sides]:
    """Yield blocks that are whole warps, or as small as a smaller problem."""
    shape, most = problem.shape, min(problem.resources.most_threads, MAX_THREADS_PER_BLOCK)
    if len(shape) == 1:
        yield from ((side,) for side in LONG if side <= most)
        return
    powers = [1 << place for place in range(11)]
    sides = [
        [power for power in powers if power <= limit and (power < 2 * side or power == 1)]
        for side, limit in zip(shape, MOST_THREADS, strict=False)
    ]
    whole = [block for block in product(*sides) if math.prod(block) % WARP_THREADS == 0]
    # A problem smaller than a warp has no block of whole ones.
    for block in whole or [tuple(each[-1] for each in sides)]:
        if math.prod(block) <= most:
            yield block


def _judged(problem: Problem, block: Sides) -> _Candidate | None:
    """Return how a block does; None where it cannot be launched."""
    threads, resources = math.prod(block), problem.resources
    grid = tuple(-(-n // side) for n, side in zip(problem.shape, block, strict=True))
    if any(count > most for count, most in zip(grid, GRID_SIDES, strict=False)):
        return None
    shared = resources.shared_bytes(threads)
    fitted = fit(problem.sm, LaunchConfig(threads, resources.registers_per_thread, shared))
    if fitted.impossible is not None:
        return None
    blocks = math.prod(grid)
    filled = math.prod(problem.shape) / (blocks * threads)
    balance, warps = 1.0, float(fitted.warps)
    if problem.sm_count:
        per_sm = -(-blocks // problem.sm_count)
        balance = blocks / (problem.sm_count * per_sm)
        # Warps without an element hide nothing: a block of 256 is no better for 7 elements.
        warps = min(warps, per_sm * fitted.warps_per_block * filled)
    coalesced, lines = _coalescing(problem, block)
    return _Candidate(
        block,
        grid,
        fitted,
        filled,
        coalesced,
        lines,
        max(0, (problem.sm_count or 0) - blocks),
        balance,
        min(1.0, warps / (ENOUGH_OCCUPANCY * fitted.max_warps)),
    )


def _coalescing(problem: Problem, block: Sides) -> tuple[float, int]:
    """Return the share of the bytes moved that a warp asked for, and the lines that it touches at
    most, where the problem begins at the begin of a line and its rows follow one another.
    """
    threads, wide, row = min(math.prod(block), WARP_THREADS), block[0], problem.shape[0]
    rows = max(1, threads // wide)
    if wide >= row and rows > 1:  # whole rows, which are one piece
        rows, together, steps = 1, rows * row, [rows * row]
    else:
        together = min(wide, row, threads)
        steps = [min(wide, threads), *([row] if len(problem.shape) > 1 else [])]
    asked = together * problem.element_bytes
    # Each piece begins at a multiple of this, as rows need not fill lines.
    step = math.gcd(LINE_BYTES, *(each * problem.element_bytes for each in steps))
    sectors = [-(-(at % SECTOR_BYTES + asked) // SECTOR_BYTES) for at in range(0, LINE_BYTES, step)]
    moved = SECTOR_BYTES * sum(sectors) / len(sectors)
    return asked / moved, rows * -(-(LINE_BYTES - step + asked) // LINE_BYTES)


def _waves(problem: Problem, of: _Candidate) -> float | None:
    if not problem.sm_count:
        return None
    return math.prod(of.grid) / (problem.sm_count * of.fitted.blocks)


def _shown(sides: Sides) -> str:
    """Return `32 x 8`, without sides of 1 at the end."""
    last = max((place for place, side in enumerate(sides) if side != 1), default=0)
    return " x ".join(f"{side:,}" for side in sides[: last + 1])


def _three(sides: Sides) -> tuple[int, int, int]:
    x, y, z = (*sides, 1, 1)[:3]
    return x, y, z


# -- reasons ---------------------------------------------------------------------------------------


def _reasons(problem: Problem, of: _Candidate, others: list[_Candidate]) -> Iterator[str]:
    """Yield sentences without a full stop."""
    yield _of_threads(problem, of)
    yield _of_rows(problem, of)
    if len(of.block) > 1 and max(of.block[1:]) > 1:
        yield (
            f"{' x '.join(map(str, of.block[1:]))} of such rows rather than wider ones: neighbours "
            "in a block share what they read, and wider rows move no less"
        )
    yield _of_shape(of, others)
    if problem.sm_count:
        yield _of_tail(problem.sm_count, of)
    else:
        yield f"how blocks fall on the SMs was not looked at: {_unknown_sms(problem.sm_counts)}"


def _of_threads(problem: Problem, of: _Candidate) -> str:
    now, threads = of.fitted, math.prod(of.block)
    limited = " and ".join(name.replace("_", " ") for name in now.limiters)
    known = "" if problem.resources.registers_per_thread else "; its registers are not known"
    enough = " (half of them hide most latency)" if now.fraction >= ENOUGH_OCCUPANCY else ""
    return (
        f"{'1 thread is' if threads == 1 else f'{threads} threads are'} "
        f"{'1 warp' if now.warps_per_block == 1 else f'{now.warps_per_block} warps'}, and an SM "
        f"holds {now.blocks} such blocks: {now.warps} of {now.max_warps} warps{enough}, limited by "
        f"{limited}{known}"
    )


def _of_rows(problem: Problem, of: _Candidate) -> str:
    lines = "1 line" if of.lines == 1 else f"{of.lines} lines"
    return (
        f"{of.block[0]} wide: a warp that reads elements of {problem.element_bytes} bytes touches "
        f"{lines} of {LINE_BYTES} bytes, and uses {of.coalesced:.0%} of what is moved"
    )


def _of_shape(of: _Candidate, others: list[_Candidate]) -> str:
    fullest = max(each.filled for each in others)
    beside = f"; {fullest:.1%} at best" if fullest > of.filled + 0.005 else ""
    return f"{of.filled:.1%} of the threads have an element{beside}"


def _unknown_sms(counts: tuple[int, ...]) -> str:
    if not counts:
        return "how many there are is not known (--sms, or sm_count=, says it)"
    return (
        f"products of this name have {' or '.join(map(str, counts))} (the whole name, --sms, or "
        "sm_count=, says how many)"
    )


def _of_tail(sm_count: int, of: _Candidate) -> str:
    blocks = math.prod(of.grid)
    if blocks < sm_count:
        idle = sm_count - blocks
        leave = "1 block leaves" if blocks == 1 else f"{blocks:,} blocks leave"
        return f"{leave} {idle} of {sm_count} SMs idle: the problem is small"
    waves = blocks / (sm_count * of.fitted.blocks)
    rest = waves - math.floor(waves)
    last = f", the last one {rest:.0%} full" if rest else ""
    return (
        f"{blocks:,} blocks are {waves:.2f} waves over {sm_count} SMs{last}; the SMs get "
        f"{of.balance:.0%} of an even share"
    )
