"""A profile to ask things of, from a file or from the store."""

from __future__ import annotations

import os
from pathlib import Path

from gpuadvisor.columns.in_memory import MemoryProfile
from gpuadvisor.domain.profile import Profile
from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.readers import known_reader


def open_profile(path_or_name: str | os.PathLike[str]) -> Profile:
    """Return the profile in a trace file, or the stored one of that name.

    A path of a file is read into memory as a whole and not stored. Anything else is looked up in
    the store: a name, a number, the begin of a file's SHA-256, or the name of a file that was
    imported; its columns are read when they are asked for. UsageError where there is no such
    profile, or the file is none.

        profile = gpuadvisor.open_profile("train.pt.trace.json.gz")
        names = profile.header.texts
        kernels = profile.columns("kernels", ["name", "duration_ns"])
    """
    path = Path(path_or_name)
    if path.is_file():
        return read_profile(path)
    if isinstance(path_or_name, os.PathLike):
        raise UsageError(f"There is no file {path}: give a trace's path, or a profile's name.")
    from gpuadvisor.storage.profiles.library import open_profiles

    return open_profiles().find(path_or_name)


def read_profile(path: Path) -> MemoryProfile:
    """Return the profile in a trace file; an AdvisorError says in a sentence why it cannot be."""
    profile = MemoryProfile()
    try:
        profile.finish(known_reader(path).read(path, profile))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{path} cannot be read ({reason}): check its permissions.") from error
    return profile
