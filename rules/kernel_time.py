"""What a run saves by kernels that take less time: shares of kernels in, time of the run out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuadvisor.domain.finding import Figure
from gpuadvisor.rules.host_pace import MARGIN, MOST, loader_sets_pace, paces, parts
from gpuadvisor.rules.rule import Estimate

if TYPE_CHECKING:
    from gpuadvisor.rules.facts.intervals import IntArray, Intervals
    from gpuadvisor.rules.facts.kernels import KernelUse
    from gpuadvisor.rules.facts.summary import Facts

LEAST_SHARE = 0.05
"""Of the device's kernel time, from which on kernels are worth a finding: below, not even their
absence can be told from noise. A share of the kernel time and not of the run, so that it does not
depend on what else was recorded. [own]"""
PLAYED = "the timeline is played again with these kernels faster"


@dataclass(frozen=True)
class Gain:
    """By which share (0 to 1) of its time some kernel gets faster, at least and at most."""

    use: KernelUse
    low: float
    high: float


def saving(facts: Facts, gains: Sequence[Gain]) -> Estimate:
    """Return what the run saves when kernels get faster."""
    return row_saving(
        facts, [RowGain(each.use.rows, each.use.time_ns, each.low, each.high) for each in gains]
    )


@dataclass(frozen=True, eq=False)
class RowGain:
    """The same of some rows of the device's work."""

    rows: Sequence[int] | IntArray
    time_ns: int
    low: float
    high: float


def row_saving(
    facts: Facts,
    gains: Sequence[RowGain],
    times: Intervals | None = None,
    host: tuple[float, float] = (0.0, 0.0),
) -> Estimate:
    """Return what the run saves when some work of the device gets faster, and, of some times of the
    host, a share goes away, at least and at most.

    It is played at the host's pace with the profiler and without (`host_pace`): the faster the host
    is, the more of the run is the device's. A DataLoader's workers keep their pace, and so does the
    host that waits for them.
    """
    player = facts.faster_kernels
    if player is None:
        return Estimate(0.0, 0.0)
    slow, fast = (1.0, 1.0) if loader_sets_pace(facts) else paces(facts)
    low = [(each.rows, each.low) for each in gains]
    high = [(each.rows, each.high) for each in gains]
    shares = [
        player.saved_share(low, slow, times, host[0]),
        player.saved_share(high, fast, times, host[1]),
    ]
    if times is not None:  # the host's time counts most where the host is slow
        shares.append(player.saved_share(low, fast, times, host[0]))
        shares.append(player.saved_share(high, slow, times, host[1]))
    least, most = (
        min(shares) * facts.window.run_ns,
        min(MARGIN * max(shares), MOST) * facts.window.run_ns,
    )
    return Estimate(least, most, parts(most, _times(facts, gains)))


def launching(facts: Facts, groups: Iterable[IntArray]) -> Intervals:
    """Return when the host launched these groups of rows, each from its first kernel to its last
    one; what else the script does between two of them stays."""
    import numpy as np

    from gpuadvisor.rules.facts.intervals import union, without

    launched = facts.launched
    known = [rows[launched.known[rows]] for rows in groups]
    times = [launched.begin_ns[rows] for rows in known if len(rows)]
    found = union(
        np.array([each.min() for each in times], np.int64),
        np.array([each.max() for each in times], np.int64),
    )
    return found if facts.timeline is None else without(found, facts.timeline.away)


def _times(facts: Facts, gains: Sequence[RowGain]) -> dict[str, float]:
    import numpy as np

    rows = [np.asarray(each.rows, np.int64) for each in gains]
    times = facts.work.kernel_times_ns(np.concatenate(rows)) if rows else {}
    return {f"kernel/{name}": float(time) for name, time in times.items()}


def share_figure(metric: str, share: float, threshold: float = LEAST_SHARE) -> Figure:
    """Return the figure that says which part of the kernel time something takes."""
    return Figure(metric, round(100 * share, 1), "%", 100 * threshold)


def named(some: Sequence[KernelUse], most: int = 2) -> str:
    """Return the names of the longest of some kernels, short enough for a sentence."""
    names = list(dict.fromkeys(short(each.name) for each in some))
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def short(name: str, most: int = 60) -> str:
    """Return a kernel's name without what does not tell it apart."""
    plain = name.removeprefix("void ").partition("(")[0] if "(anonymous" not in name else name
    plain = plain.removeprefix("void ").replace("(anonymous namespace)::", "")
    for wrapper in ("cutlass::Kernel2<", "cutlass::Kernel<"):
        if plain.startswith(wrapper):
            plain = plain.removeprefix(wrapper).removesuffix(">")
    return plain if len(plain) <= most else plain[: most - 3] + "..."
