"""Processes of others on the GPU, and those that belong together."""

from dataclasses import replace

from tests.rules.machines import machine, process, profiled

OURS = process(100)
FIRES = {
    "another one works": lambda: machine((60, {}), processes=(OURS, process(200))),
    "another one holds memory": lambda: machine(
        (60, {}), processes=(OURS, process(200, sm_utilization_pct=0.0))
    ),
    "the run's process is told": lambda: machine(
        (60, {}), processes=(OURS, process(200)), environment={"pid": "100"}
    ),
    "a profile tells it": lambda: profiled(machine((60, {}), processes=(OURS, process(200)))),
    "another launcher's": lambda: machine(
        (60, {}), processes=(process(100, parent_pid=50), process(200, parent_pid=60))
    ),
}
SILENT = {
    "alone": lambda: machine((60, {}), processes=(OURS,)),
    "nobody": lambda: machine((60, {}), processes=()),
    "ranks of one launcher": lambda: machine(
        (60, {}), processes=tuple(process(pid, parent_pid=50) for pid in (100, 101, 102))
    ),
    "a child": lambda: machine((60, {}), processes=(OURS, process(101, parent_pid=100))),
    "a desktop": lambda: machine((60, {}), processes=(OURS, replace(process(7), kind="graphics"))),
    "the server of MPS": lambda: machine(
        (60, {}), processes=(OURS, process(200, name="nvidia-cuda-mps-server"))
    ),
    "numbers of another name space": lambda: machine(
        (60, {}), processes=(process(100, is_host_pid=True), process(200, is_host_pid=True))
    ),
    "a profile of a process that is not listed": lambda: profiled(
        machine((60, {}), processes=(process(300), process(200)))
    ),
}
