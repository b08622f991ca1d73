"""Kernels that are tuned: what the store's profiles say of them before, and their GPUs after it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from gpuadvisor.domain.finding import ScopeKind
from gpuadvisor.domain.kernel_records import KernelDiagnosis, KernelResult
from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.errors import StoreError, UsageError
from gpuadvisor.profiling.evidence import ceilings_of_device, evidence_of
from gpuadvisor.profiling.resolving import stored_profile
from gpuadvisor.reports.kernel.outcome import KernelOutcome, outcome
from gpuadvisor.rules import engine
from gpuadvisor.rules.facts.kernel_families import readable
from gpuadvisor.storage.kernel_studies import with_evaluations
from gpuadvisor.storage.profiles.library import open_profiles

LOOKED_AT = 20
"""Newest profiles with counters that are looked at: each is read whole."""


def diagnosis_of(kernel: str, device: str) -> KernelDiagnosis | None:
    """Return what the newest profile with counters of a function of this name, on a GPU of this
    name, says of it; None where the store has none, or cannot be read.
    """
    try:
        profiles = open_profiles()
        counted = [each.id for each in profiles.list() if each.table_rows.get("metrics")]
        for number in counted[:LOOKED_AT]:
            stored = profiles.get(number)
            if [each.name for each in stored.header.devices[:1]] != [device]:
                continue
            evidence = evidence_of(stored_profile(stored))
            alike = [e for e, _ in evidence.kernel_loads if function_name(e.name) == kernel]
            if alike:
                names = {each.name for each in alike}
                found = engine.diagnose(evidence).findings
                rules = [
                    each.rule
                    for each in found
                    if each.scope.kind is ScopeKind.KERNEL
                    and each.scope.name in names
                    and each.hidden_by is None
                ]
                threads = frozenset(each.threads for each in alike if each.threads)
                return KernelDiagnosis(stored.record.name, tuple(dict.fromkeys(rules)), threads)
    except StoreError:  # a kernel can be tuned without
        pass
    return None


def function_name(kernel: str) -> str:
    """Return the name of a kernel's function alone: `tile` of `void ours::tile<8>(float *)`."""
    plain = readable(kernel).removeprefix("void ").replace("(anonymous namespace)::", "")
    return re.split(r"[<(]", plain, maxsplit=1)[0].rpartition("::")[2].strip()


def outcomes(results: Iterable[KernelResult]) -> list[KernelOutcome]:
    """Return each result with its evaluations, where they can be read, and its place on the
    roofline of its GPU."""
    found = []
    for result in results:
        if not result.evaluations:
            with suppress(UsageError):  # what was proven stands without them
                result = with_evaluations(result)
        device = DeviceLimits(
            0,
            result.device,
            compute_capability=result.compute_capability,
            uuid=result.uuid or None,
        )
        found.append(outcome(result, ceilings_of_device(device)))
    return found
