"""All that is known of a run: its profile, its other ranks, its telemetry, what the harness saw."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpuadvisor.collectors.script.events import RunRecorder
from gpuadvisor.collectors.script.request import Event
from gpuadvisor.daemon.sources import window_of_store
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.metrics import SamplingInterval
from gpuadvisor.domain.profile import DeviceLimits, Header, Recording
from gpuadvisor.domain.telemetry_window import TelemetryWindow
from gpuadvisor.errors import StoreError
from gpuadvisor.profiling.rank_runs import runs_of
from gpuadvisor.profiling.resolving import ResolvedProfile
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.ceilings import Ceilings, theoretical
from gpuadvisor.rules.facts.excerpt import judged_recordings
from gpuadvisor.rules.facts.fitness import judged
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.storage.profiles.library import open_profiles
from gpuadvisor.storage.profiles.stored import StoredProfile

MOST_RANKS = 64
"""Ranks whose profiles are read: each costs memory, and a straggler shows among so many. [own]"""
BETWEEN_POLLS_S = 2 * SamplingInterval.NORMAL.period_s
"""Longest time between two polls of a daemon that runs: twice the usual one."""
_TORCH = re.compile(r"torch (\d[\w.+]*)")


def evidence_of(
    resolved: ResolvedProfile, measured: Measurement | None = None, *, whole: bool = False
) -> Evidence:
    """Return what is known of a profile's run; its facts are computed when they are asked for.

    Of a large one they are those of a part of it, unless the whole is asked for.
    """
    header = resolved.profile.header
    ceilings = ceilings_of(header)
    ranks = _ranks(resolved.profile)
    own = resolved.profile
    every = ranks if own in ranks else (*ranks, own)
    found = tuple(facts_of_ranks(every, ceilings, whole=whole))
    telemetry, why = telemetry_of(header)
    return Evidence(
        found[every.index(own)],
        found[: len(ranks)],
        telemetry,
        why,
        measured,
        ceilings,
        environment(header),
    )


def ceilings_of(header: Header) -> Ceilings | None:
    """Return what the profile's device can do, as measured if it was; None without a device."""
    if not header.devices:
        return None
    return ceilings_of_device(header.devices[0])


def ceilings_of_device(device: DeviceLimits) -> Ceilings:
    """Return what a GPU can do, as `bench-device` measured that or its like, else in theory."""
    try:
        measured = open_profiles().newest_ceilings(device.uuid, device.name)
    except StoreError:  # a trace can be looked at without a store
        measured = {}
    return theoretical(device).preferring(measured)


def facts_of(profile: Recording, ceilings: Ceilings | None, *, whole: bool = False) -> Facts:
    """Return the facts of the part of a profile that can be judged, with what its device can do."""
    return next(facts_of_ranks((profile,), ceilings, whole=whole))


def facts_of_ranks(
    profiles: Sequence[Recording], ceilings: Ceilings | None, *, whole: bool = False
) -> Iterator[Facts]:
    """Yield the same for each rank of a run: of large profiles those of the same part of all."""
    can = ceilings.values() if ceilings else {}
    if whole:
        return (judged(each, can) for each in profiles)
    return judged_recordings(profiles, can)


def environment(header: Header) -> Mapping[str, str]:
    """Return versions and settings as the profile tells them, that of torch as `torch`."""
    found = dict(header.facts)
    if torch := _TORCH.search(header.tool):
        found["torch"] = torch[1]
    return found


def telemetry_of(header: Header) -> tuple[TelemetryWindow | None, str | None]:
    """Return what telemetry was stored of the time and the GPUs of a profile; and why there is none
    of it, where a daemon polled these GPUs just before."""
    if header.begin_unix_ns is None or header.duration_ns <= 0:
        return None, None
    begin_s, lasted_s = header.begin_unix_ns / 1e9, header.duration_ns / 1e9
    try:
        window = _window_here(header, begin_s, begin_s + lasted_s)
        if window is not None or lasted_s > BETWEEN_POLLS_S:
            return window, None
        before = _window_here(header, begin_s - BETWEEN_POLLS_S, begin_s)
    except StoreError:  # a trace can be looked at without a store
        return None, None
    if before is None:
        return None, None
    return None, f"no poll of the daemon fell into the {1e3 * lasted_s:.3g} ms that were recorded"


def _window_here(header: Header, begin_s: float, end_s: float) -> TelemetryWindow | None:
    """Return the telemetry of a time; None where it is not of the GPUs that a profile is of."""
    window = window_of_store(begin_s, end_s)
    if window is None:
        return None
    here = {each.gpu.uuid for each in window.gpus} | {each.gpu.name for each in window.gpus}
    recorded_here = all((each.uuid or each.name) in here for each in header.devices)
    return window if recorded_here else None


def of_other_rank(evidence: Evidence, place: int) -> Evidence:
    """Return what is known of another rank of the same run, by its place among them."""
    facts = evidence.ranks[place]
    header = facts.profile.header
    telemetry, why = telemetry_of(header)
    return replace(
        evidence,
        facts=facts,
        telemetry=telemetry,
        no_telemetry=why,
        environment=environment(header),
    )


def _ranks(profile: Recording) -> tuple[Recording, ...]:
    """Return the profiles of the same run that were imported from the same folder, by rank, this
    one among them; nothing where it is alone."""
    if not isinstance(profile, StoredProfile) or not profile.record.ranks_of:
        return ()
    own = profile.record
    profiles = open_profiles()
    for run in runs_of(profiles.list(own.ranks_of)):
        if own.id in {each.id for each in run.records}:
            return tuple(
                profile if each.id == own.id else profiles.get(each.id)
                for each in run.records[:MOST_RANKS]
            )
    return ()


class HarnessEvents:
    """What the harness saw of a script while a profiler counted its steps."""

    def __init__(self) -> None:
        self._recorder = RunRecorder(lambda: None)
        self._began_s = time.monotonic()

    def take(self, event: Event) -> None:
        """Take one event."""
        self._recorder.take(event, time.monotonic() - self._began_s)

    def measurement(self, facts: Facts) -> Measurement | None:
        """Return what was seen, with the steps of the profile; None where there are none."""
        owner, steps = self._recorder.owner, facts.steps
        if owner is None or steps is None or not steps.steps:
            return None
        durations = [step.duration_ns / 1e9 for step in steps.steps]
        window = {
            "steps": len(durations),
            "seconds": sum(durations),
            "data_wait_s": sum(step.data_wait_ns for step in steps.steps) / 1e9,
            "loader_samples": 0,
            "root_samples": 0,
        }
        values = [1e3 * each for each in durations]
        self.take({"event": "steps", "pid": owner, "values": values})
        self.take({"event": "window", "pid": owner, **window})
        return self._recorder.measurement(None, time.monotonic() - self._began_s)
