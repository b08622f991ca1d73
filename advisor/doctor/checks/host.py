"""The machine beside its GPUs: disks, shared memory, cores."""

from __future__ import annotations

import getpass
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.collectors.devices import cpu_limit, usable_cores
from gpuadvisor.doctor.check import Check, CheckState, MachineState, from_sentence
from gpuadvisor.errors import StoreError
from gpuadvisor.storage.home import HOME_VARIABLE, home

STORE, CACHE = "store", "compile cache"
MIB, GIB = 2**20, 2**30
STORE_NEEDS_BYTES = 16 * MIB
"""Space for the database and its write-ahead log, without any raw telemetry."""
STORE_WANTS_BYTES = 256 * MIB
"""Free space below which raw sampling stops."""
CACHE_WANTS_BYTES = GIB
"""A choice, not a measurement: every trial that compiles differently adds its code to the cache."""
THREADS_VARIABLE = "OMP_NUM_THREADS"
"""Says how many threads torch starts for an operation on the CPU."""
SHARED_MEMORY = Path("/dev/shm")
SHARED_MEMORY_WANTS_BYTES = 2**30
"""8 workers with 2 batches each of 256 images of 224 x 224 x 3 in uint8 need 0.6 GiB."""


@dataclass(frozen=True)
class Place:
    """The file system that a folder is, or would be made, on."""

    folder: Path
    free_bytes: int
    writable: bool
    executable: bool
    """Whether compiled code can be loaded from it (not mounted `noexec`)."""

    def __str__(self) -> str:
        return f"{self.folder}, {self.free_bytes / GIB:.1f} GiB free"


def check_disk_space(machine: MachineState) -> Iterator[Check]:
    """The store and Inductor's cache need a writable folder with room in it."""
    try:
        yield judge_store(_place(home()))
    except StoreError as error:
        yield from_sentence(STORE, CheckState.PROBLEM, str(error))
    if machine.torch:
        yield judge_cache(_place(cache_folder(machine.environ)))


def judge_store(place: Place) -> Check:
    """Say whether there is room for results."""
    fix = f"set {HOME_VARIABLE} to a folder with more room"
    if place.free_bytes < STORE_NEEDS_BYTES:
        return Check(STORE, CheckState.PROBLEM, f"{place}: too little for results", fix)
    if place.free_bytes < STORE_WANTS_BYTES:
        return Check(STORE, CheckState.WARNING, f"{place}: raw telemetry is not kept", fix)
    return Check(STORE, CheckState.OK, str(place))


def judge_cache(place: Place) -> Check:
    """Say whether torch.compile can keep what it compiles, and load it."""
    if not place.writable or not place.executable:
        fault = "is mounted noexec" if place.writable else "cannot be written"
        detail = f"{place.folder} {fault}: torch.compile fails"
        fix = "set TORCHINDUCTOR_CACHE_DIR to a folder of your own on another disk"
        return Check(CACHE, CheckState.WARNING, detail, fix)
    if place.free_bytes < CACHE_WANTS_BYTES:
        fix = "free some, or set TORCHINDUCTOR_CACHE_DIR to a folder with more room"
        return Check(CACHE, CheckState.WARNING, f"{place}: torch.compile may fill it", fix)
    return Check(CACHE, CheckState.OK, str(place))


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return where Inductor compiles (torch/_inductor/runtime/cache_dir_utils.py)."""
    if chosen := environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(chosen)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number without a name
        user = f"uid_{os.getuid()}"
    return Path(tempfile.gettempdir()) / f"torchinductor_{user}"


def _place(folder: Path) -> Place:
    folder = folder.absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    state = os.statvfs(existing)
    writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    no_exec = getattr(os, "ST_NOEXEC", 0)
    return Place(folder, state.f_bavail * state.f_frsize, writable, not state.f_flag & no_exec)


def check_shared_memory(machine: MachineState) -> Iterator[Check]:
    """DataLoader workers hand their batches over in shared memory; containers give 64 MiB of it."""
    if SHARED_MEMORY.is_dir():
        yield judge_shared_memory(shutil.disk_usage(SHARED_MEMORY).free)


def judge_shared_memory(free_bytes: int) -> Check:
    """Say whether DataLoader workers have room."""
    found = f"{free_bytes / 2**30:.1f} GiB free in {SHARED_MEMORY}"
    if free_bytes >= SHARED_MEMORY_WANTS_BYTES:
        return Check("shared memory", CheckState.OK, found)
    detail = f"{found}: DataLoader workers may die of a bus error"
    return Check(
        "shared memory",
        CheckState.WARNING,
        detail,
        "start the container with `--shm-size=8g` or `--ipc=host`",
    )


def check_cpu(machine: MachineState) -> Iterator[Check]:
    """Cores and memory that this process may use bound what data loading can do."""
    cpu = machine.cpu
    limit, seen = cpu_limit(machine.root), usable_cores()
    if machine.torch and limit is not None and THREADS_VARIABLE not in machine.environ:
        yield from judge_threads(limit, seen)
    memory = f", {cpu.memory_bytes / 2**30:.1f} GiB" if cpu.memory_bytes else ""
    cores = "1 core" if cpu.cores == 1 else f"{cpu.cores} cores"
    found = f"{cpu.name}, {cores}{memory}"
    if cpu.cores > 1:
        yield Check("cpu", CheckState.OK, found)
    else:
        detail = f"{found}: DataLoader workers cannot help"
        yield Check("cpu", CheckState.WARNING, detail, "give the job or container more cores")


def judge_threads(limit: float, seen: int) -> Iterator[Check]:
    """Say whether a container's CPU limit suffices for the threads that torch starts by itself.

    That is one for each physical core that it sees. On two cores of which a container had time of
    0.8, a small convolutional network took 252 ms a step with two threads and 129 with one.
    """
    if limit >= seen:
        return
    found = f"a CPU limit of {limit:g} cores on {seen} that torch sees"
    wanted = max(1, int(limit))
    detail = f"{found}: its threads may use that up, and are held back then"
    yield Check("cpu limit", CheckState.WARNING, detail, f"set {THREADS_VARIABLE}={wanted}")


CHECKS = {90: check_disk_space, 100: check_shared_memory, 110: check_cpu}
