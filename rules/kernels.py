"""What the rules about kernels with hardware counters share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps

from gpuadvisor.domain.finding import Figure, Scope, ScopeKind
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernel_families import ONE_VECTOR, readable
from gpuadvisor.rules.facts.kernel_loads import FIXED_S, Loads, Shares
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.requirements import WITH_COUNTERS, Requirement
from gpuadvisor.rules.rule import LEAST_REACHED, NOTICEABLE, Check, Estimate, RuleResult

Look = Callable[["KernelMetrics", "Loads"], RuleResult | None]
"""Looks at one kernel of which time and loads are known."""

LIBRARY = re.compile(
    r"at::native|cutlass|cublas|cudnn|xmma|nvjet|flash::|flash_[fb]wd|fmha|cub::|nccl|magma|winograd"
    r"|^(?:void )?(?:volta|turing|ampere|hopper|sm\d\d)_",
    re.IGNORECASE,
)
"""Parts of the names of kernels whose makers chose registers and shared memory with care: few warps
with much work each is how they are meant to run."""
PRODUCT = re.compile(r"(?<!sp)gemm(?!v)|mat_?mul|bmm(?![a-z])", re.IGNORECASE)
SPARSE = re.compile(r"sparse|csr|coo_|ell_", re.IGNORECASE)
"""Parts of the names of products of two matrices, and of those of which one is sparse, where few
values are used again."""
MOST_BUSY = 0.60
"""Share of a unit from which on a kernel does not wait for lack of warps or of loads on their way:
Nsight Compute's threshold of "latency bound"."""
LEAST_BUSY = 0.30
"""Share of a unit's peak below which it is not what limits. [own]"""
AT_ROOF = 0.80
"""Share of a unit from which on a kernel is at its roof: Nsight Compute's threshold."""
LEAST_CONFLICTS = 0.10
"""Least share of cycles that conflicts in shared memory cost: Nsight Compute's threshold."""
MOST_TENSOR = 0.01
"""Share of the tensor cores up to which they are idle: on Hopper products of 16-bit floats outside
of them show as a few thousandths."""
LEAST_IDLE = 0.15
"""Least share of the SMs' time without any warp, from which on the grid is what limits: starting
and ending a kernel takes a few percent, and a grid of one full wave lost 6 % on an H100. [own]"""
_LONGEST_NAME = 60  # characters


SPOKEN = {
    "sm_count": "multiprocessors",
    "least_sm_count": "multiprocessors",
    "shared_bank_conflicts": "shared conflicts",
}
"""What messages call figures whose names are no words."""


MOST_FILLED = 0.3
"""Share of the GPU's places for blocks (waves), at most, of a launch that is too small: seven
tenths and more of them stay empty. [own]"""
MOST_S = 2 * FIXED_S
"""Seconds of a launch, at most, that is too short: half of its time or more is what no kernel is
spared."""
SERIAL_S = 1e-3
"""Seconds of a launch from which on even a single thread has much to do, a few thousand accesses
to memory one after the other. [own]"""


def has_few_threads(kernel: KernelMetrics) -> bool:
    """Say whether a kernel has fewer threads in all than its GPU has multiprocessors: however they
    are dealt out, most of the GPU has nothing to do."""
    threads, sm_count = kernel.all_threads, kernel.least_sm_count
    return threads is not None and sm_count is not None and threads < sm_count


def of_few_threads(count: int) -> str:
    """Return what to do where fewer threads than multiprocessors do all of the work."""
    return (
        f"Give the work more threads first, if it can be dealt out: {count} thread"
        f"{' does' if count == 1 else 's do'} it alone."
    )


def too_small(kernel: KernelMetrics) -> bool:
    """Say whether a launch is too small to judge: it fills little of the GPU for microseconds, or
    has so few threads that there is no work to cut."""
    if kernel.filled is None or kernel.counters.time_ns <= 0:
        return False
    seconds = kernel.counters.time_ns / kernel.counters.count / 1e9
    if seconds < MOST_S and kernel.filled < MOST_FILLED:
        return True
    return seconds < SERIAL_S and has_few_threads(kernel)


def is_library(kernel: KernelMetrics) -> bool:
    """Say whether a kernel comes from a library that is tuned for the GPU."""
    return LIBRARY.search(kernel.name) is not None


def knows(*figures: str) -> Requirement:
    """Require at least one kernel with time, loads and these of `KernelMetrics`."""
    without = "no kernel has its time and how busy its units are (section SpeedOfLight)"
    return _of_some(figures, lambda kernel, loads: loads is not None, without)


def counts(*figures: str) -> Requirement:
    """Require at least one kernel with its time and these of `KernelMetrics`, however busy its
    units are."""
    return _of_some(figures, lambda kernel, loads: kernel.seconds is not None)


def _of_some(
    figures: Sequence[str], is_fit: Callable[[KernelMetrics, Loads | None], bool], without: str = ""
) -> Requirement:
    """Require figures of at least one kernel that is fit; `without` says that none is."""

    def missing(evidence: Evidence) -> str | None:
        if not evidence.kernel_counters:
            return "no hardware counters of kernels"
        fit = [kernel for kernel, loads in evidence.kernel_loads if is_fit(kernel, loads)]
        if not fit and without:
            return without
        if any(all(_has(kernel, each) for each in figures) for kernel in fit):
            return None
        absent = [each for each in figures if not any(_has(kernel, each) for kernel in fit)]
        return f"no kernel has counters for its {_spoken((absent or figures)[0])}"

    return Requirement(missing, WITH_COUNTERS)


def _spoken(figure: str) -> str:
    return SPOKEN.get(figure, figure.replace("_", " "))


def _has(kernel: KernelMetrics, figure: str) -> bool:
    return getattr(kernel, figure) not in (None, {})


def of_each(look: Look) -> Check:
    """Return the check of a rule that looks at one kernel at a time.

    Of several launches of one kernel it yields what is found of the one that is worth most; what
    would make the kernel hardly faster (`NOTICEABLE`) is not told.
    """

    @wraps(look)
    def check(evidence: Evidence) -> Iterator[RuleResult]:
        looked = (
            (kernel.name, look(kernel, loads))
            for kernel, loads in evidence.kernel_loads
            if loads is not None
        )
        yield from most_of_each(each for each in looked if _is_worth_telling(each[1]))

    return check


def _is_worth_telling(result: RuleResult | None) -> bool:
    saving = None if result is None else result.saving
    if saving is None or not saving.of_ns:
        return True
    return (saving.low_ns + saving.high_ns) / 2 >= NOTICEABLE * saving.of_ns


def most_of_each(results: Iterable[tuple[str, RuleResult | None]]) -> Iterator[RuleResult]:
    """Yield, of the results of several launches by the kernel's name, the one of each that is worth
    most."""
    found: dict[str, RuleResult] = {}
    for name, result in results:
        if result is not None:
            before = found.get(name)
            if before is None or _worth(result) > _worth(before):
                found[name] = result
    yield from found.values()


def _worth(result: RuleResult) -> float:
    return 0.0 if result.saving is None else result.saving.low_ns + result.saving.high_ns


def result_of(
    kernel: KernelMetrics,
    summary: str,
    figures: tuple[Figure, ...],
    advice: str,
    shares: Shares | None,
    method: str,
    severity: Severity | None = None,
) -> RuleResult:
    """Return a result about a kernel; the saving is in shares of its own time."""
    return RuleResult(
        summary,
        figures,
        advice,
        None if shares is None else saving_of(kernel, shares),
        "" if shares is None else method,
        Scope(ScopeKind.KERNEL, kernel.name),
        severity,
    )


def saving_of(kernel: KernelMetrics, shares: Shares) -> Estimate:
    """Return a saving of a kernel's time."""
    return Estimate.of_kernel(kernel.name, kernel.counters.time_ns, shares.low, shares.high)


def notice_at_most(shares: Shares) -> Severity:
    """Return the severity of what may be worth much but is no fault."""
    return Severity.NOTICE if shares.middle >= NOTICEABLE else Severity.INFO


def up_to(high: float) -> Shares:
    """Return what is saved of a kernel's time where a cure saves at most so much."""
    return Shares(LEAST_REACHED * high, high)


def unless_library(kernel: KernelMetrics, shares: Shares) -> Severity | None:
    """Return the most severe that a fault within a library's kernel is: nobody can change it."""
    return notice_at_most(shares) if is_library(kernel) else None


def reuses_tiles(kernel: KernelMetrics) -> bool:
    """Say whether a program's own kernel is, by its name, a product of matrices, which uses each
    value many times: one with one vector or a sparse one does not, and a library's has its
    tiles."""
    name = kernel.name
    others = SPARSE.search(name) or ONE_VECTOR.search(name) or is_library(kernel)
    return PRODUCT.search(name) is not None and not others


def short(kernel: KernelMetrics) -> str:
    """Return a kernel's name without its arguments, as a sentence can hold it."""
    whole = readable(kernel.name)
    name = re.sub(r"\((?:[^()]|\([^()]*\))*\)\s*$", "", whole) or whole
    name = name.removeprefix("void ")
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
