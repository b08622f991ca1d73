"""Kernels with counters of which a better variant was measured, and what the rules estimate."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpuadvisor.collectors.nsight import compute_csv
from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.finding import Finding, Span
from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.ncu_kernels import KernelCounters
from gpuadvisor.rules.facts.summary import Facts
from tests.rules.building import counters

DATA = Path(__file__).parents[1] / "data"
PUBLISHED = "GPUADVISOR_PUBLISHED_KERNELS"
"""Environment variable: a file with counters of kernels from public reports that have no licence,
so that it is in no repository. tests/data/estimates/README.md says what is in it."""
TIME = "gpu__time_duration.sum"


@dataclass(frozen=True)
class Estimate:
    """What a rule says of a kernel, and what its cure was measured to save, in percent."""

    case: str
    rule: str
    memory_bound: bool
    estimate: Span
    measured: float

    @property
    def inside(self) -> bool:
        return self.estimate.low <= self.measured <= self.estimate.high

    @property
    def error(self) -> float:
        """Of the estimate's middle, in points."""
        return abs(self.estimate.middle - self.measured)


@cache
def profiled(name: str) -> Evidence:
    """Return the evidence of a packed CSV of the profiles."""
    profile = MemoryProfile()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "raw.csv"
        path.write_bytes(gzip.decompress((DATA / "profiles" / name).read_bytes()))
        profile.finish(compute_csv.read(path, profile))
    return Evidence(facts=Facts(profile))


@cache
def published() -> Mapping[str, Evidence]:
    """Return the evidence of each kernel of public reports, by its name; none without the file."""
    path = os.environ.get(PUBLISHED)
    told = json.loads(Path(path).read_text("utf-8")) if path else ()
    return {each["kernel"]: _published(each) for each in told}


def _published(told: Mapping[str, Any]) -> Evidence:
    device = {**told["device"], "compute_capability": tuple(told["device"]["compute_capability"])}
    return counters(
        told["metrics"],
        told["kernel"],
        ms=1e3 * told["metrics"][TIME],
        grid=math.prod(told["grid"]),
        block=math.prod(told["block"]),
        device=DeviceLimits(0, **device),
    )


def kernel_named(evidence: Evidence, name: str) -> KernelCounters:
    """Return the kernel whose name begins so, whatever its result and arguments are."""
    bare = {each.name.removeprefix("void "): each for each in evidence.kernel_counters}
    return next(bare[full] for full in sorted(bare, key=len) if full.startswith(name))


def findings_of(evidence: Evidence, name: str) -> tuple[Finding, ...]:
    """Return what all rules say of a kernel as if it had been captured alone, what matters most
    first."""
    full = kernel_named(evidence, name).name
    alone = Evidence(facts=evidence.facts)
    launches = tuple(each for each in evidence.kernel_counters if each.name == full)
    alone.__dict__["kernel_counters"] = launches  # as if the profile had no others
    return tuple(each for each in diagnose(alone).findings if each.scope.name == full)


def estimates() -> Iterator[Estimate]:
    """Return all cases with what the rules say now: nothing is an estimate of 0."""
    for case in _read("kernel_cases.json"):
        if "file" not in case and case["kernel"] not in published():
            continue
        evidence = _evidence(case, case["kernel"])
        told = (each for each in findings_of(evidence, case["kernel"]) if each.rule == case["rule"])
        finding = next(told, None)
        worth = None if finding is None else finding.improvement_pct
        yield Estimate(
            case["case"],
            case["rule"],
            case["memory_bound"],
            worth or Span(0.0, 0.0),
            _saved_pct(case, evidence),
        )


def _saved_pct(case: Mapping[str, Any], evidence: Evidence) -> float:
    if "saved_pct" in case:
        return float(case["saved_pct"])
    before = kernel_named(evidence, case["kernel"]).metrics[TIME]
    return 100 * (1 - _after_s(case) / before)


def _after_s(case: Mapping[str, Any]) -> float:
    if "better_ms" in case:
        return float(case["better_ms"]) / 1e3
    better = case["better"]
    return kernel_named(_evidence(case, better), better).metrics[TIME]


def _evidence(case: Mapping[str, Any], kernel: str) -> Evidence:
    return profiled(case["file"]) if "file" in case else published()[kernel]


def _read(name: str) -> Any:
    return json.loads((DATA / "estimates" / name).read_text("utf-8"))
