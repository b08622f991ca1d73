"""A GPU at its power limit, for long enough and below its clocks, or not."""

from tests.rules.machines import A100, IDLE, machine, profiled

CAPPED = {"throttle_reasons": 0x4, "sm_clock_mhz": 1395, "power_w": 699.0}
FIRES = {
    "all of the time": lambda: machine((60, CAPPED)),
    "between idle phases": lambda: machine((30, IDLE), (20, CAPPED), (10, IDLE)),
    "just long enough": lambda: machine((53, {}), (7, CAPPED)),
    "a profile of what ran meanwhile": lambda: profiled(machine((10, CAPPED))),
    "a limit that is not known": lambda: machine((60, {**CAPPED, "power_limit_w": None})),
}
SILENT = {
    "a GPU at work": lambda: machine((60, {})),
    "now and then": lambda: machine((56, {}), (4, CAPPED)),
    "at its limit and its highest clock": lambda: machine((60, {**CAPPED, "sm_clock_mhz": 1965})),
    "two samples": lambda: machine((58, IDLE), (2, CAPPED)),
    "a profile of another GPU": lambda: profiled(machine((10, CAPPED)), device=A100.name),
}
