"""All that is known of a run: its profile, those of its other ranks, telemetry of its time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpuadvisor.daemon.sources import window_of_store
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.profile import Header, Profile
from gpuadvisor.domain.telemetry_window import TelemetryWindow
from gpuadvisor.errors import StoreError
from gpuadvisor.profiling.naming import Named, peaks_of
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.ceilings import Ceilings
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.storage.profiles.library import open_profiles
from gpuadvisor.storage.profiles.stored import StoredProfile

MOST_RANKS = 64
"""Whose profiles are looked at: each costs memory, and a straggler shows among so many. [own]"""
_TORCH = re.compile(r"torch (\d[\w.+]*)")


def evidence_of(named: Named, measured: Measurement | None = None) -> Evidence:
    """Return what is known of a profile's run; its facts are computed when they are asked for."""
    header = named.profile.header
    peaks = peaks_of(header)
    facts = facts_of(named.profile, peaks)
    return Evidence(
        facts,
        _ranks(named.profile, facts, peaks),
        telemetry_of(header),
        measured,
        peaks,
        environment(header),
    )


def facts_of(profile: Profile, peaks: Ceilings | None) -> Facts:
    """Return the facts of a profile, with what its device can do."""
    ceilings = {name: peak.value for name, peak in peaks.by_quantity.items()} if peaks else {}
    return Facts(profile, ceilings)


def environment(header: Header) -> Mapping[str, str]:
    """Return versions and settings as the profile tells them, that of torch as `torch`."""
    found = dict(header.facts)
    if torch := _TORCH.search(header.tool):
        found["torch"] = torch[1]
    return found


def telemetry_of(header: Header) -> TelemetryWindow | None:
    """Return what telemetry was stored of the time and the GPUs of a profile."""
    if header.begin_unix_ns is None or header.duration_ns <= 0:
        return None
    begin_s = header.begin_unix_ns / 1e9
    try:
        window = window_of_store(begin_s, begin_s + header.duration_ns / 1e9)
    except StoreError:  # a trace can be looked at without a store
        return None
    return window if window is not None and _is_of(header, window) else None


def _is_of(header: Header, window: TelemetryWindow) -> bool:
    """Return whether a window is of the machine on which the profile was recorded."""
    here = {each.gpu.uuid for each in window.gpus} | {each.gpu.name for each in window.gpus}
    return all((each.uuid or each.name) in here for each in header.devices)


def _ranks(profile: Profile, facts: Facts, peaks: Ceilings | None) -> tuple[Facts, ...]:
    """Return the profiles that were imported from the same folder, by rank."""
    if not isinstance(profile, StoredProfile) or not profile.record.ranks_of:
        return ()
    return tuple(_others(profile, facts, peaks))


def _others(profile: StoredProfile, facts: Facts, peaks: Ceilings | None) -> Iterator[Facts]:
    own = profile.record
    profiles = open_profiles()
    group = {each.rank: each for each in profiles.list(own.ranks_of)}
    group = {own.rank: own, **{rank: each for rank, each in group.items() if rank != own.rank}}
    kept = {rank: each for rank, each in list(group.items())[:MOST_RANKS] if rank is not None}
    size = facts.profile.header.world_size
    for _, each in sorted(kept.items()):
        found = facts if each.id == own.id else facts_of(profiles.get(each.id), peaks)
        if found.profile.header.world_size == size:  # else it is of another run
            yield found
