"""A bisection: the commit that made a script worse."""

from __future__ import annotations

from dataclasses import dataclass

from gpuadvisor.domain.gate import GateResult, GateVerdict


@dataclass(frozen=True)
class Commit:
    """A commit of the user's repository."""

    commit: str
    """Its full hash."""
    name: str
    """Its short hash with its subject, or as the user named it."""


@dataclass(frozen=True)
class Step:
    """A commit that was compared with the good one."""

    commit: Commit
    verdict: GateVerdict
    found: GateResult | None
    """None where it could not be compared."""
    reason: str = ""
    """Why not, without a full stop."""


@dataclass(frozen=True)
class Bisected:
    """What a bisection found."""

    good: Commit
    bad: Commit
    first_bad: tuple[Commit, ...]
    """One commit, or those between which nothing tells, oldest first."""
    steps: tuple[Step, ...]
    """In the order in which they were made; the first one is of `bad` itself."""

    @property
    def proof(self) -> Step:
        """The comparison of the newest of `first_bad`, which failed."""
        return next(each for each in self.steps if each.commit == self.first_bad[-1])
