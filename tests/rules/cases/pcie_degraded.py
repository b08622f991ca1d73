"""Links that are low at work, or only while the GPU is idle."""

from dataclasses import replace

from tests.rules.machines import GPU, IDLE, machine, profiled

NARROW = {"pcie_width": 8}
OLD = {"pcie_generation": 3}
INSTANCE = replace(GPU, uuid="MIG-0", parent_uuid="GPU-0")
FIRES = {
    "too few lanes": lambda: machine((60, NARROW)),
    "an older generation": lambda: machine((60, OLD)),
    "beside idle phases": lambda: machine((50, IDLE), (10, OLD)),
    "a profile of what ran meanwhile": lambda: profiled(machine((10, NARROW))),
}
SILENT = {
    "all that there is": lambda: machine((60, {})),
    "an idle GPU": lambda: machine((60, IDLE)),
    "up in one sample at work": lambda: machine((1, {}), (59, OLD)),
    "a slot that has no more": lambda: machine((60, {**NARROW, "pcie_width_max": 8})),
    "an instance of a GPU": lambda: machine((60, NARROW), gpu=INSTANCE),
}
