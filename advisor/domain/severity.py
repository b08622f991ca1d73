"""How much something matters: an event of the machine, or a finding of a rule."""

from __future__ import annotations

from enum import Enum


class Severity(str, Enum):
    """A degree that events and findings share, the least first; the words are part of the JSON."""

    INFO = "info"
    NOTICE = "notice"
    """Of findings only: something to gain, but less than what matters."""
    WARNING = "warning"
    ERROR = "error"
    """Of events only: something is broken."""
    CRITICAL = "critical"
    """Of findings only: what `ERROR` is of events."""

    def __str__(self) -> str:
        return self.value

    @property
    def rank(self) -> int:
        """0 to 3; higher matters more. An error ranks as what is critical."""
        return _RANKS[self]


_RANKS = {
    Severity.INFO: 0,
    Severity.NOTICE: 1,
    Severity.WARNING: 2,
    Severity.ERROR: 3,
    Severity.CRITICAL: 3,
}
EVENT_SEVERITIES = (Severity.INFO, Severity.WARNING, Severity.ERROR)
FINDING_SEVERITIES = (Severity.INFO, Severity.NOTICE, Severity.WARNING, Severity.CRITICAL)
