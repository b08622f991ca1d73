"""How much something matters: an event of the machine, or a finding of a rule."""

from __future__ import annotations

from enum import Enum


class Severity(str, Enum):
    """A degree that events and findings share, the least first; the words are part of the JSON."""

    INFO = "info"
    NOTICE = "notice"
    """A finding that is worth less than a warning."""
    WARNING = "warning"
    ERROR = "error"
    """An event of something that is broken."""
    CRITICAL = "critical"
    """A finding that costs most of all, or makes results wrong."""

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
