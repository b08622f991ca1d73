"""Large messages pass far slower than the link between the GPUs allows."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.profile import Header
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.requirements import COMMUNICATION, KERNELS
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult

GPUS_OF_A_BOARD = 8
"""GPUs of an HGX board with NVSwitch, the only machines whose link is known from names alone."""
LINKS = {"A100-SXM": 300e9, "H100 80GB HBM3": 450e9, "H200": 450e9, "B200": 900e9}
"""Part of a GPU's name to its NVLink in bytes a second and direction (NVIDIA's data sheets)."""
LEAST_BYTES = 8_000_000
"""Least bytes of a message: smaller ones are bound by latency. [own]"""
LEAST_SHARE = 0.5
"""Least share of the link. NCCL's tests reach 75 to 80 % of it on such boards. [own]"""
REACHED = 0.75

RULE = Rule(Category.COMMUNICATION, needs=(KERNELS, COMMUNICATION))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find collectives of all GPUs of one board, whose fastest one is below half of its link."""
    facts = evidence.known_facts
    link = _link(facts.profile.header)
    for device in facts.communication:
        for each in device.collectives if link is not None else ():
            speed, moved = each.best_bus_bandwidth_bytes_per_s, each.bytes
            if link is None or speed is None or moved is None or each.group_size is None:
                continue
            is_large = moved >= LEAST_BYTES * each.count
            if not is_large or each.group_size != GPUS_OF_A_BOARD or speed >= LEAST_SHARE * link:
                continue
            yield RuleResult(
                f"{each.name} passes at most {speed / 1e9:.0f} GB/s over a link of"
                f" {link / 1e9:.0f} GB/s, with messages of {moved / each.count / 1e6:.0f} MB",
                (
                    Figure(
                        "bus_bandwidth", round(speed / 1e9, 1), "GB/s", LEAST_SHARE * link / 1e9
                    ),
                    Figure("message", round(moved / each.count / 1e6, 1), "MB", LEAST_BYTES / 1e6),
                ),
                "See how NCCL connects the GPUs (`NCCL_DEBUG=INFO`, `nvidia-smi topo -m`,"
                " `nvidia-smi nvlink -s`) and whether NCCL_* variables or a container without"
                " shared memory or peer access keep it from NVLink.",
                Estimate(
                    0.0,
                    each.exposed_ns * (1 - speed / (REACHED * link)),
                    {"communication/exposed": each.exposed_ns},
                ),
                "At most the exposed time that these messages would take less at 75 % of the link.",
                severity=Severity.NOTICE,
            )
            return


def _link(header: Header) -> float | None:
    """Return the link of a run on all GPUs of one board; None of any other."""
    names = {device.name for device in header.devices}
    is_board = len(header.devices) == GPUS_OF_A_BOARD == header.world_size and len(names) == 1
    if not is_board:
        return None
    name = next(iter(names))
    return next((speed for part, speed in LINKS.items() if part in name), None)
