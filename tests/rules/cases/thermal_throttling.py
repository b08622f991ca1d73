"""A GPU that is cut for its heat, by its driver or itself."""

from tests.rules.machines import IDLE, machine

HOT = {"temperature_c": 86, "sm_clock_mhz": 1500}
SOFTWARE, HARDWARE = ({**HOT, "throttle_reasons": bit} for bit in (0x20, 0x48))
FIRES = {
    "by the driver": lambda: machine((60, SOFTWARE)),
    "by the hardware": lambda: machine((50, {}), (10, HARDWARE)),
    "clocks that are not known": lambda: machine((60, {**SOFTWARE, "sm_clock_mhz": None})),
}
SILENT = {
    "hot, but not cut": lambda: machine((60, {"temperature_c": 86})),
    "a second of an hour": lambda: machine((58, {}), (2, SOFTWARE)),
    "a bit that stays while it is idle": lambda: machine((60, {**IDLE, "throttle_reasons": 0x20})),
    "another slow-down by hardware": lambda: machine((60, {"throttle_reasons": 0x88})),
}
