"""What a rule is: one file with a `RULE` and a `check`, and a page beside it.

    '''The GPU waits for batches.'''            # the first line says what is wrong

    RULE = Rule(Category.INPUT_BOUND, needs=(IDLE, RANGES), knobs=("dataloader_workers",))

    def check(evidence: Evidence) -> Iterator[RuleResult]: ...

A result says by how much the run would get shorter; how severe it is, what it hides and where it
ranks follow from that and are none of the rule's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from gpuadvisor.domain.finding import RUN, Category, Figure, Scope
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.requirements import Requirement

if TYPE_CHECKING:  # it loads numpy, which the daemon does without
    from gpuadvisor.rules.facts.intervals import IntArray


NOTICEABLE = 0.02
"""Share of the run, or of the kernels' time, from which on something is a notice, and rules speak
of it: of less nobody can tell whether a cure helped, as runs of the same program differ by as much
(`paces.MARGIN`). [own]"""


SERIOUS = 0.08
"""Share of the run, or of the kernels' time, from which on something is a warning
(`engine.SEVERITIES`): what saves nobody knows how much of some time is told from where all of that
time would be one."""
MOST = 0.5
"""Share from which on something is most of it: all else together is less."""


LEAST_REACHED = 0.5
"""Share that a cure saves at least of the most that it may save, where nothing tells how much of it
is within reach: of 18 cures of counted kernels on A10G, H100 and H200 one saved 0.58 of it and the
others 0.79 and more (`tests/data/estimates`)."""


@dataclass(frozen=True)
class Estimate:
    """The time that a cure would save, of what was recorded."""

    low_ns: float
    high_ns: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """What that time is a part of: names to the time they have, such as `idle/launching` or
    `kernel/NAME`. Two savings of the same part share what is left of it."""
    of_ns: float | None = None
    """The time that it is compared with; that of the run where it is None."""
    work: IntArray | None = field(default=None, compare=False)
    """Rows of the devices' work that get shorter; None where it is none of some work."""
    counts_ns: float | None = None
    """The most of it that counts where findings are put in order: what is above is saved by another
    cure than the one that is sure to help. All of it where it is None."""

    @classmethod
    def of_part(cls, name: str, time_ns: float, low: float, high: float) -> Estimate:
        """Return a saving of shares (0 to 1) of one part of the run."""
        return cls(low * time_ns, high * time_ns, {name: time_ns})

    @classmethod
    def of_kernel(cls, name: str, time_ns: float, low: float, high: float) -> Estimate:
        """Return a saving of shares of a kernel of which nothing tells its part of a run."""
        return cls(low * time_ns, high * time_ns, {f"kernel/{name}": time_ns}, time_ns)


@dataclass(frozen=True)
class RuleResult:
    """What a rule says of the evidence."""

    summary: str
    """One sentence: what, where, how much."""
    evidence: tuple[Figure, ...]
    advice: str
    saving: Estimate | None = None
    """None where it is no matter of time, or cannot be known."""
    method: str = ""
    """How the saving was estimated; starts with `At most` where it is an upper bound of all that
    the advice can save, and not only of a part of it."""
    scope: Scope = RUN
    severity: Severity | None = None
    """Severity where it is no matter of time, or matters less than its time; else None."""
    knobs: tuple[str, ...] | None = None
    """Knobs where the rule's own do not fit this result; else None."""
    program_advice: str = ""
    """What to do in a program that is none of PyTorch, where the advice has words of that."""
    work: IntArray | None = field(default=None, compare=False)
    """Rows of the devices' work that it is about, where the saving does not tell them: its place in
    the program is where they were launched (`facts.places`)."""
    calls: IntArray | None = field(default=None, compare=False)
    """Rows of the calls into CUDA that it is about."""
    as_measured: bool = True
    """Whether the saving is estimated as for the cures that were measured of this rule: else these
    say nothing of its range."""


def percent(metric: str, share: float, threshold: float | None = None, unit: str = "%") -> Figure:
    """Return a figure of a share (0 to 1), in percent."""
    told = None if threshold is None else round(100 * threshold, 1)
    return Figure(metric, round(100 * share, 1), unit, told)


Check: TypeAlias = Callable[[Evidence], Iterable[RuleResult]]


@dataclass(frozen=True)
class Rule:
    """How a rule stands among the others."""

    category: Category
    needs: tuple[Requirement, ...]
    knobs: tuple[str, ...] = ()
    """Names of knobs that would try the cure, the most promising first."""
    hides: tuple[str, ...] = ()
    """Rules or categories that show only symptoms of this, in the same scope or within it."""


@dataclass(frozen=True)
class Loaded:
    """A rule with what belongs to it."""

    name: str
    title: str
    """What is wrong, in a few words."""
    rule: Rule
    check: Check
    read_page: Callable[[], str]

    @property
    def page(self) -> str:
        """The page in Markdown, read when it is asked for; empty where there is none."""
        return self.read_page()

    def missing(self, evidence: Evidence) -> tuple[str, str] | None:
        """Return what is missing and how to measure it; None where the rule can look."""
        for need in self.rule.needs:
            why = need.missing(evidence)
            if why is not None:
                return why, need.way(evidence)
        return None
