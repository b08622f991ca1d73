"""Low clocks that are set, and those that power, heat or idleness explain."""

from tests.rules.machines import IDLE, machine

LOCKED = {"sm_clock_mhz": 1410}
FIRES = {
    "a locked clock": lambda: machine((60, LOCKED)),
    "application clocks": lambda: machine((60, {**LOCKED, "throttle_reasons": 0x2})),
    "just low enough": lambda: machine((60, {"sm_clock_mhz": 1770})),
    "at its power limit for a moment": lambda: machine(
        (56, LOCKED), (4, {**LOCKED, "throttle_reasons": 0x4})
    ),
}
SILENT = {
    "the highest clock": lambda: machine((60, {})),
    "a few steps below": lambda: machine((60, {"sm_clock_mhz": 1800})),
    "power": lambda: machine((60, {**LOCKED, "throttle_reasons": 0x4})),
    "heat": lambda: machine((60, {**LOCKED, "throttle_reasons": 0x20})),
    "an idle GPU": lambda: machine((60, IDLE)),
}
