"""Full utilization with idle SMs, on GPUs that count them and on those that do not."""

from tests.rules.machines import A100, IDLE, machine

FEW = {"sm_active_pct": 12.0, "gpu_utilization_pct": 100}
NOT_COUNTED = {"sm_active_pct": None, "gpu_utilization_pct": 100}
FIRES = {
    "few SMs": lambda: machine((60, FEW)),
    "just few enough": lambda: machine((60, {**FEW, "sm_active_pct": 49.0})),
    "beside idle phases": lambda: machine((30, IDLE), (30, FEW)),
    "little power on an older GPU": lambda: machine(
        (60, {**NOT_COUNTED, "power_w": 150.0, "power_limit_w": 400.0}), gpu=A100
    ),
}
SILENT = {
    "many SMs": lambda: machine((60, {})),
    "half of the time": lambda: machine((60, {**FEW, "gpu_utilization_pct": 60})),
    "counters that are broken": lambda: machine((60, {**FEW, "sm_active_pct": 0.0})),
    "little power where SMs could be counted": lambda: machine(
        (60, {**NOT_COUNTED, "power_w": 150.0})
    ),
    "power on an older GPU": lambda: machine(
        (60, {**NOT_COUNTED, "power_w": 250.0, "power_limit_w": 400.0}), gpu=A100
    ),
}
