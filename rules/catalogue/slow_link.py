"""Large messages pass far slower than the link between the GPUs allows."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.links import link
from gpuadvisor.rules.requirements import COMMUNICATION, KERNELS, Requirement
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult

LEAST_BYTES = 8_000_000
"""Least bytes of a message: smaller ones are bound by latency. [own]"""
LEAST_SHARE = 0.5
"""Least share of the link. NCCL's tests reach 75 to 80 % of it on boards with NVSwitch. [own]"""
REACHED = 0.75


def _lacks_link(evidence: Evidence) -> str | None:
    facts = evidence.known_facts
    if not facts.communication or link(facts.profile.header, evidence.telemetry) is not None:
        return None
    names = {device.name for device in facts.profile.header.devices if device.name}
    between = f" between {' and '.join(sorted(names))}" if 0 < len(names) < 3 else ""
    return f"the speed of the links{between} is not known"


RULE = Rule(
    Category.COMMUNICATION,
    needs=(
        KERNELS,
        COMMUNICATION,
        Requirement(
            _lacks_link, "gpuadvisor daemon start (then record some seconds, on one machine)"
        ),
    ),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find large collectives within one machine, whose fastest one is below half of its link."""
    facts = evidence.known_facts
    known = link(facts.profile.header, evidence.telemetry)
    for device in facts.communication:
        for each in device.collectives if known is not None else ():
            speed, moved = each.best_bus_bandwidth_bytes_per_s, each.bytes
            if known is None or speed is None or moved is None or (each.group_size or 0) < 2:
                continue
            is_large = moved >= LEAST_BYTES * each.count
            if not is_large or speed >= LEAST_SHARE * known.bytes_per_s:
                continue
            most = known.bytes_per_s
            yield RuleResult(
                f"{each.name} passes at most {speed / 1e9:.0f} GB/s over {known.name} of"
                f" {most / 1e9:.0f} GB/s, with messages of {moved / each.count / 1e6:.0f} MB",
                (
                    Figure(
                        "bus_bandwidth", round(speed / 1e9, 1), "GB/s", LEAST_SHARE * most / 1e9
                    ),
                    Figure("message", round(moved / each.count / 1e6, 1), "MB", LEAST_BYTES / 1e6),
                ),
                "See how NCCL connects the GPUs (`NCCL_DEBUG=INFO`, `nvidia-smi topo -m`,"
                " `nvidia-smi nvlink -s`) and whether NCCL_* variables or a container without"
                " shared memory or peer access keep it from the link.",
                Estimate(
                    0.0,
                    each.exposed_ns * (1 - speed / (REACHED * most)),
                    {"communication/exposed": each.exposed_ns},
                ),
                "At most the exposed time that these messages would take less at 75 % of the link.",
                severity=Severity.NOTICE,
            )
            return
