"""Memory just above and just below 95 %."""

from tests.rules.machines import GIB, machine

FULL = {"memory_used_bytes": 77 * GIB}
FIRES = {
    "above": lambda: machine((60, FULL)),
    "for a second": lambda: machine((59, {}), (1, FULL)),
    "only the list of GPUs tells how much there is": lambda: machine(
        (60, {**FULL, "memory_total_bytes": None})
    ),
}
SILENT = {
    "half": lambda: machine((60, {})),
    "just below": lambda: machine((60, {"memory_used_bytes": 76 * GIB})),
    "it is not known how much is used": lambda: machine(
        (60, {}), (60, {"memory_used_bytes": None})
    ),
}
