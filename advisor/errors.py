"""The errors a user can act on; anything else that escapes is a bug in gpuadvisor."""

from __future__ import annotations


class AdvisorError(Exception):
    """Base of every expected failure. `str(error)` is shown to the user as it is."""

    exit_code = 1


class MissingError(AdvisorError):
    """What a command works on is not there: a GPU, or anything stored that it could show."""

    exit_code = 1


class UsageError(AdvisorError):
    """The command line, a plan or the configuration asks for something that cannot be done."""

    exit_code = 2


class ScriptError(AdvisorError):
    """The user's script cannot be measured: it fails, never steps, or hangs without any knob."""

    exit_code = 3

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output
        """The end of what the script printed, to be shown below the message."""


class FindingsError(AdvisorError):
    """A diagnosis found what the user asked to be told of by the exit status."""

    exit_code = 4


class RegressionError(AdvisorError):
    """A gate found a version slower than the one before, or needing more memory, or broken."""

    exit_code = 4


class InconclusiveError(AdvisorError):
    """Neither was shown: that a plan still holds, or does not; that a version got worse, or not."""

    exit_code = 6


class BrokenPlanError(AdvisorError):
    """A plan does not hold any more: its gain is gone, results differ, or it fails."""

    exit_code = 1


class StoreError(AdvisorError):
    """The database cannot be opened, read or written."""

    exit_code = 5


class SilentError(AdvisorError):
    """The driver, or the daemon that asks it, does not answer: there are no values of now."""

    exit_code = 7


class RefusedError(AdvisorError):
    """The machine is in no state in which versions could be compared."""

    exit_code = 7


class Interrupted(AdvisorError):  # noqa: N818 - not an error of anybody's
    """Ctrl-C or SIGTERM ended the work; what was measured by then is kept."""

    exit_code = 130
