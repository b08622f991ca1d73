"""How a text looks beside what it says: a colour adds to the words and never stands for them."""

from __future__ import annotations

from enum import Enum

from gpuadvisor.domain.latest import Reading
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import State


class Tone(Enum):
    """What a text is, to be given a style where there are colours."""

    PLAIN = ""
    GOOD = "good"
    QUIET = "quiet"
    WARNING = "warning"
    ERROR = "error"
    PICTURE = "picture"


SEVERITIES = {
    Severity.INFO: Tone.PLAIN,
    Severity.WARNING: Tone.WARNING,
    Severity.ERROR: Tone.ERROR,
}
STYLES = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.QUIET: "dim",
    Tone.WARNING: "yellow",
    Tone.ERROR: "bold red",
    Tone.PICTURE: "cyan",
}
"""As Rich has them: the terminal's own colours, which its owner can read."""


def tone_of(reading: Reading | None) -> Tone:
    """Return how the sign of a reading looks."""
    if reading is None or reading.state in (State.NOT_SUPPORTED, State.NO_PERMISSION):
        return Tone.QUIET
    if reading.state is State.LOST:
        return Tone.ERROR
    return Tone.WARNING if reading.state is State.STALE else Tone.PLAIN
