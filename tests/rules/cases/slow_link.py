"""All-reduces of a board of eight GPUs, fast and slow, large and small."""

from dataclasses import replace

from gpuadvisor.domain.telemetry import Gpu
from gpuadvisor.domain.telemetry_window import GpuWindow, Series, TelemetryWindow
from tests.profiles import Made
from tests.rules.building import H100, timeline


def reduces(gb_per_s, megabytes=64, size=8, gpus=8, world=8, name=H100.name):
    """Ten all-reduces with this bus bandwidth."""
    made = Made()
    moved = megabytes * 1e6 * 2 * (size - 1) / size
    us = 1e6 * moved / (gb_per_s * 1e9)
    for number in range(10):
        correlation = made.correlation()
        begin = number * (us + 10)
        runs = (begin, us)
        made.launched("ncclDevKernel_AllReduce", (begin, 5), runs, correlation=correlation)
        made.row(
            "collectives",
            correlation=correlation,
            begin_ns=round(1000 * begin),
            name="allreduce",
            type="Float",
            in_elements=round(megabytes * 1e6 / 4),
            out_elements=round(megabytes * 1e6 / 4),
            group="0",
            group_size=size,
            sequence=number,
        )
    evidence = timeline(made)
    profile = evidence.facts.profile
    devices = tuple(replace(H100, index=index, name=name) for index in range(gpus))
    profile.finish(replace(profile.header, devices=devices, world_size=world, rank=0))
    return evidence


def watched(evidence, links, generation=4):
    """The same with telemetry of the machine: so many links of NVLink are up."""
    values = {"nvlink_links": links, "pcie_generation_max": generation, "pcie_width_max": 16}
    series = {name: Series(3, *5 * [float(value)]) for name, value in values.items()}
    gpus = tuple(GpuWindow(Gpu(f"GPU-{at}", at, "Tesla V100"), series) for at in range(2))
    return replace(evidence, telemetry=TelemetryWindow(0.0, 10.0, gpus))


def two_v100(gb_per_s):
    return reduces(gb_per_s, size=2, gpus=2, world=2, name="Tesla V100-SXM2-32GB")


FIRES = {
    "PCIe in place of NVLink": lambda: reduces(20),
    "just slow enough": lambda: reduces(224),
    "a pair of GPUs of a board with NVSwitch": lambda: reduces(20, size=2),
    "a GPU that has no NVLink": lambda: reduces(9, name="NVIDIA L40S"),
    "telemetry tells the links": lambda: watched(two_v100(10), links=2),
    "telemetry tells that there are none": lambda: watched(two_v100(10), links=0),
}
SILENT = {
    "as fast as usual": lambda: reduces(360),
    "half": lambda: reduces(226),
    "small messages": lambda: reduces(20, megabytes=7),
    "several machines": lambda: reduces(20, world=16, size=16),
    "a pair of GPUs": lambda: reduces(20, size=2, gpus=2, world=2),
    "a GPU whose link is not known": lambda: reduces(20, name="Tesla V100-SXM2-32GB"),
    "half of PCIe": lambda: reduces(16, name="NVIDIA L40S"),
    "telemetry tells slower links": lambda: watched(two_v100(26), links=2),
}
