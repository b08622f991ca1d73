"""Slow-downs by hardware, with and without a reason that says more."""

from tests.rules.machines import IDLE, machine

SLOW = {"throttle_reasons": 0x8, "sm_clock_mhz": 900}
BRAKE = {"throttle_reasons": 0x88, "sm_clock_mhz": 900}
FIRES = {
    "without more": lambda: machine((60, SLOW)),
    "two seconds": lambda: machine((58, {}), (2, SLOW)),
    "the power brake": lambda: machine((30, {}), (30, BRAKE)),
    "an idle GPU": lambda: machine((60, {**IDLE, "throttle_reasons": 0x9})),
}
SILENT = {
    "one reading": lambda: machine((59, {}), (1, SLOW)),
    "heat": lambda: machine((60, {"throttle_reasons": 0x48})),
    "power": lambda: machine((60, {"throttle_reasons": 0x4})),
}
