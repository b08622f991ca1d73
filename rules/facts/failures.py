"""Calls into CUDA that returned an error, and launches of which the recording has no kernel: what
they were to do did not happen, or was not recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpuadvisor.domain.profile import CallKind, FailedCalls, failed_calls
from gpuadvisor.rules.facts.intervals import by_key
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.window import FILLED

ERRORS: Mapping[int, tuple[str, str]] = {
    1: ("cudaErrorInvalidValue", ""),
    2: ("cudaErrorMemoryAllocation", "the GPU's memory was full"),
    9: ("cudaErrorInvalidConfiguration", "the grid or block is none that the GPU can run"),
    35: ("cudaErrorInsufficientDriver", "install a newer driver"),
    98: ("cudaErrorInvalidDeviceFunction", "compile for this GPU's compute capability (-arch)"),
    100: ("cudaErrorNoDevice", "no GPU was visible"),
    209: ("cudaErrorNoKernelImageForDevice", "compile for this GPU's compute capability (-arch)"),
    218: ("cudaErrorInvalidPtx", ""),
    222: (
        "cudaErrorUnsupportedPtxVersion",
        "the driver is older than the compiler of the PTX: install a newer driver, or compile for"
        " this GPU's compute capability (-arch)",
    ),
    700: ("cudaErrorIllegalAddress", "compute-sanitizer finds the access"),
    701: ("cudaErrorLaunchOutOfResources", "a block needs more registers or shared memory than"
          " there are"),
    702: ("cudaErrorLaunchTimeout", ""),
    716: ("cudaErrorMisalignedAddress", "compute-sanitizer finds the access"),
    719: ("cudaErrorLaunchFailure", "compute-sanitizer finds what failed"),
}  # fmt: skip
"""Number of an error to its name in the CUDA runtime (`driver_types.h`; the driver's number is the
same) and what it calls for, where that is known."""
STICKY = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719})
"""Errors of a kernel that runs, after which nothing that the process launched ends any more
("leaves the process in an inconsistent state", `driver_types.h`); later calls return them."""
_LAUNCHING = (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH)
MOST_TOLD = 3
"""Kinds of failed calls that a sentence names; those that came most often."""


def failed_launches(facts: Facts) -> tuple[FailedCalls, ...]:
    """Return the calls that were to launch kernels and returned an error."""
    names = np.unique(facts.host.name[facts.host.of_kinds(_LAUNCHING)]).tolist()
    launching = {facts.profile.header.texts[name] for name in names}
    found = failed_calls(facts.profile.header.facts) or ()
    return tuple(each for each in found if each.name in launching)


def all_launches_failed(facts: Facts) -> bool:
    """Say whether something was to be launched and no kernel ran to its end: no call that launches
    succeeded, or the first kernels that were launched ended all that came after them.

    For the latter most launches have to have failed, and something of the GPU to be recorded: else
    kernels may have run, of which the recording lacks the rows.
    """
    launches = int(facts.host.of_kinds(_LAUNCHING).sum())
    failed = sum(each.times for each in failed_launches(facts))
    if facts.work.kernels or not launches:
        return False
    first_ended = 2 * failed > launches and sticky_error(facts) is not None
    return launches <= failed or (first_ended and len(facts.work) > 0)


def sticky_error(facts: Facts) -> int | None:
    """Return the error that ended all that was launched before a call returned it, if any did."""
    found = failed_calls(facts.profile.header.facts) or ()
    return next((each.error for each in found if each.error in STICKY), None)


def none_failed(facts: Facts) -> bool:
    """Say whether it is known that no call returned an error."""
    return failed_calls(facts.profile.header.facts) == ()


def failures(facts: Facts) -> str | None:
    """Return which calls returned which error, how often, in a sentence without a full stop; None
    where none did or it is not known."""
    found = failed_calls(facts.profile.header.facts)
    if not found:
        return None
    launches = int(facts.host.of_kinds(_LAUNCHING).sum())
    failed = sum(each.times for each in failed_launches(facts))
    if not failed:
        return f"Calls into CUDA returned errors: {_listed(found)}"
    who = "All" if failed >= launches else f"{failed:,} of"
    calls = (
        f"{who} {launches:,} calls that launch" if launches != 1 else "The only call that launches"
    )
    none = "so their kernels did not run"
    if all_launches_failed(facts):
        none = "so no kernel ran" if failed >= launches else "so no kernel ran to its end"
    return f"{calls} kernels returned an error, {none}: {_listed(found)}"


def _listed(found: Sequence[FailedCalls]) -> str:
    """Return `cudaLaunchKernel 222 (cudaErrorUnsupportedPtxVersion), 21 times`."""
    ordered = sorted(found, key=lambda each: -each.times)
    words = []
    for each in ordered[:MOST_TOLD]:
        name, remedy = ERRORS.get(each.error, ("", ""))
        meaning = ": ".join(filter(None, (name, remedy)))
        often = "once" if each.times == 1 else f"{each.times:,} times"
        words.append(f"{each.name} {each.error}{f' ({meaning})' if meaning else ''}, {often}")
    if len(ordered) > MOST_TOLD:
        words.append(f"{len(ordered) - MOST_TOLD} more")
    return "; ".join(words)


def lost_launches(facts: Facts) -> str | None:
    """Return that many launches have no kernel in the recording, in a sentence."""
    launching = int(facts.host.of_kinds((CallKind.LAUNCH,)).sum())
    if not launching or not facts.work.kernels or "capturing" in facts.starting.kinds:
        return None
    ran = np.unique(facts.launched.call[: facts.work.kernels])
    lost = 1 - min(len(ran[ran >= 0]) / launching, 1.0)
    failed = sum(each.times for each in failed_launches(facts))
    lost -= min(failed / launching, lost)  # which is told as such
    if lost <= 1 - FILLED:  # what is launched just before a recording ends is always among them
        return None
    told = f"{100 * lost:.0f} % of the launches"
    without = f"{told} have no kernel in the recording"
    error = sticky_error(facts)
    if error is not None:
        return f"{without}: the error {error} ends what was launched before it as well"
    if only_last_lost(facts):
        return (
            f"{told}, the last ones, have no kernel: the recording of the GPU ended before their"
            " kernels"
        )
    return f"{without}, which lost some"


def only_last_lost(facts: Facts) -> bool:
    """Tell whether all launches whose kernels are missing came after all others of their process:
    the recording was cut off, as Kineto leaves out kernels that end after it was stopped."""
    host = facts.host
    launching = np.flatnonzero(host.of_kinds((CallKind.LAUNCH,)))
    ran = np.isin(launching, facts.launched.call[: facts.work.kernels])
    for _, at in by_key(host.process[launching]):
        of_one = at[np.argsort(host.begin_ns[launching[at]], kind="stable")]
        if not ran[of_one].any() or (np.diff(ran[of_one].astype(np.int8)) > 0).any():
            return False
    return True
