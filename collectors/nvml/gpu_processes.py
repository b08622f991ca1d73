"""The processes that have memory on the GPUs: by NVML which, by the operating system who they are.

In a container with its own process numbers, NVML gives the host's, or lists none: these mean
nothing here, or another process. Those that can only be one of the container's CUDA processes are
shown as that (`in_their_place`), others as the host's, and nothing is invented about them.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import time
from collections.abc import Iterator, Sequence
from ctypes import Structure, byref, c_uint, c_ulonglong
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from gpuadvisor.collectors.nvml import codes
from gpuadvisor.domain.accumulators import LISTING_HOLDS_S
from gpuadvisor.domain.telemetry import Gpu, GpuProcess, State

COMMAND_CHARACTERS = 300
NAME_CHARACTERS = 15
"""Most of a process's name that the kernel keeps (TASK_COMM_LEN)."""
OUR_VARIABLE = b"GPUADVISOR_SPECIFICATION="
"""The begin of the variable by which gpuadvisor tells a script its settings."""
MOST_CHILDREN = 256
"""Descendants of one process that are looked at, 12 us each: more loader workers than machines have
cores."""
CONTAINER_ID_CHARACTERS = 12
"""Length of a container's identifier, as `docker ps` shows it."""

_FIRST_NAMESPACE = "pid:[4026531836]"
"""The host's namespace of process numbers (PROC_PID_INIT_INO in the kernel's proc_ns.h)."""
_CONTAINER = re.compile("[0-9a-f]{64}")
"""docker, containerd, podman and Kubernetes all name the control group by the whole id."""
KINDS = {"compute": "Compute", "graphics": "Graphics"}
_VERSIONS = ("_v3", "_v2", "")
_WINDOW_US = 5_000_000
"""Utilization is averaged over the newest samples of so long; the driver keeps older ones too."""
_EPOCH_US = 10**15
"""Time stamps above are Unix time, of 2001 and later."""
_NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF
UNIFIED_MEMORY = "/dev/nvidia-uvm"
_GPU = re.compile(r"/dev/nvidia(\d+)")
Listed = dict[int, tuple[str, int | None]]
"""Kind (`compute`, `graphics`) and bytes on the GPU of each PID."""


_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MOST_CPU_PCT = 100.0 * (os.cpu_count() or 1)
"""All cores of the machine."""


class _Stat(NamedTuple):
    """What changes of a process, from one file of the kernel's (proc_pid_stat(5))."""

    read_s: float
    """Monotonic time."""
    began: int
    """Ticks from the machine's start to the process's: with its number, its identity."""
    cpu_ticks: int
    waited_ticks: int
    """CPU time of the children that it has waited for, and of theirs."""
    host_memory_bytes: int


class ProcessFacts:
    """Facts of processes, each asked once where it cannot change."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[int, tuple[_Stat, dict[str, Any]]] = {}
        """What was read last, and the fields of a GpuProcess that do not change while it lives."""
        self._now: dict[int, dict[str, Any]] = {}
        """All that is known of the processes of this round: one may be on every GPU."""
        self._children: dict[int, tuple[float, int]] = {}
        """When the descendants of each process were read last, and what CPU time they had taken in
        all, in ticks."""
        self._booted_s: float | None = None
        """When the machine started, as it is told in this round."""
        self._users: dict[int, str] = {}
        """Names by the user's number: asking may take a service on the network."""
        self._has_host_numbers = _namespace(proc) == _FIRST_NAMESPACE

    def describe(
        self, gpu: str, pid: int, kind: str, memory_bytes: int | None, sm_pct: float | None
    ) -> GpuProcess:
        """Return a process of a GPU with all that can be known of it here."""
        facts = self._now.get(pid)
        if facts is None:
            unknown = {"name": None, "is_host_pid": not self._has_host_numbers}
            facts = self._now[pid] = self._facts(pid) or unknown
        return GpuProcess(gpu, pid, kind, memory_bytes, sm_utilization_pct=sm_pct, **facts)

    @property
    def is_contained(self) -> bool:
        """Whether this container has process numbers of its own."""
        return not self._has_host_numbers

    def is_unknown(self, pid: int) -> bool:
        """Return whether nothing is known here of a process that the driver lists."""
        return self._facts(pid) is None

    def forget_others(self, pids: set[int]) -> None:
        """Forget all but these processes; what changes is read anew afterwards."""
        self._now.clear()
        self._booted_s = None  # it moves where the clock is set
        for pid in self._known.keys() - pids:
            del self._known[pid]
            self._children.pop(pid, None)

    def _facts(self, pid: int) -> dict[str, Any] | None:
        stat = _stat(pid)
        if stat is None:
            return None
        before, lasting = self._known.get(pid, (stat, {}))
        if not lasting or before.began != stat.began:
            before = stat
            found = self._lasting(pid)
            if found is None:
                return None
            lasting = found
        self._known[pid] = (stat, lasting)
        passed_s = stat.read_s - before.read_s
        used_s = (stat.cpu_ticks - before.cpu_ticks) / _TICKS_PER_S
        cpu_pct = 100 * used_s / passed_s if passed_s > 0 else None
        return {
            **lasting,
            "cpu_pct": cpu_pct,
            "host_memory_bytes": stat.host_memory_bytes,
            "children_cpu_pct": self._children_cpu_pct(pid, stat),
        }

    def _children_cpu_pct(self, pid: int, parent: _Stat) -> float | None:
        """Return the CPU time of descendants without GPU memory, in percent of a core; None at
        first, and where the kernel does not list children. What one took that has ended is in what
        its parent has waited for, so the workers of a short epoch count as well."""
        found: dict[int, _Stat] = {}
        above = [pid]
        while above and len(found) < MOST_CHILDREN:
            listed = _children(above.pop())
            if listed is None:
                return None
            for child in listed:
                stat = None if child in self._known or child in found else _stat(child)
                if stat is not None:
                    found[child] = stat
                    above.append(child)
        ticks = parent.waited_ticks + sum(e.cpu_ticks + e.waited_ticks for e in found.values())
        before = self._children.get(pid)
        self._children[pid] = parent.read_s, ticks
        if before is None or parent.read_s <= before[0]:
            return None
        # One that nobody waits for takes its time with it, and one of the GPU's adds all it had.
        used = 100 * (ticks - before[1]) / _TICKS_PER_S / (parent.read_s - before[0])
        return min(max(used, 0.0), MOST_CPU_PCT)

    def _lasting(self, pid: int) -> dict[str, Any] | None:
        named, _, rest = _read(pid, "stat").rpartition(b")")
        if not rest or (not self._has_host_numbers and not self._may_use_gpus(pid)):
            return None
        fields = rest.split()  # from the third one on
        words = os.fsdecode(_read(pid, "cmdline").rstrip(b"\0")).split("\0")
        name, first = os.fsdecode(named.partition(b"(")[2]), words[0].rpartition("/")[2]
        if self._booted_s is None:
            self._booted_s = _booted_s()
        booted_s = self._booted_s
        return {
            # The kernel keeps the first 15 characters of a name.
            "name": first if len(name) >= NAME_CHARACTERS and first.startswith(name) else name,
            "user": self._user(pid),
            "command": " ".join(words)[:COMMAND_CHARACTERS] or None,
            "container": self._container(pid),
            "parent_pid": int(fields[1]),
            "started_s": None if booted_s is None else int(fields[19]) / _TICKS_PER_S + booted_s,
            "by_gpuadvisor": self._is_ours(pid),
        }

    def _user(self, pid: int) -> str | None:
        """Return the name of the user who started it; the number where that user has none."""
        found = re.search(rb"^Uid:\s*(\d+)", _read(pid, "status"), re.MULTILINE)
        if found is None:
            return None
        number = int(found[1])
        if number not in self._users:
            try:
                self._users[number] = pwd.getpwuid(number).pw_name
            except KeyError:
                self._users[number] = str(number)
        return self._users[number]

    def _is_ours(self, pid: int) -> bool | None:
        """Return whether gpuadvisor started a process; None where its environment is not ours."""
        try:
            given = (self._proc / str(pid) / "environ").read_bytes()
        except OSError:
            return None
        return any(each.startswith(OUR_VARIABLE) for each in given.split(b"\0"))

    def _may_use_gpus(self, pid: int) -> bool:
        """Whether a process may be the one that NVML means: it has a device file of NVIDIA open."""
        try:
            for link in (self._proc / str(pid) / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if "/dev/nvidia" in str(link.readlink()):
                        return True
        except OSError:
            return True  # another user's: it cannot be told
        return False

    def _container(self, pid: int) -> str | None:
        try:
            groups = (self._proc / str(pid) / "cgroup").read_text("utf-8", "replace")
        except OSError:
            return None
        found = _CONTAINER.findall(groups)
        return found[-1][:CONTAINER_ID_CHARACTERS] if found else None


def _stat(pid: int) -> _Stat | None:
    """Return what changes of a process; None where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - once a process
            # The name, the second field, may hold anything; the third comes after its bracket.
            fields = file.read(4096).rpartition(b")")[2].split()
        own, waited = (int(fields[at]) + int(fields[at + 1]) for at in (11, 13))
        began, pages = int(fields[19]), int(fields[21])
    except (OSError, ValueError, IndexError):
        return None
    return _Stat(time.monotonic(), began, own, waited, pages * _PAGE_BYTES)


def _children(pid: int) -> list[int] | None:
    """Return the children that a process's first thread has started; none where it is gone, None
    where the kernel does not say (CONFIG_PROC_CHILDREN)."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as file:  # noqa: PTH123 - the same
            return [int(child) for child in file.read(4096).split()]
    except FileNotFoundError:
        return None if Path(f"/proc/{pid}/task/{pid}").exists() else []
    except (OSError, ValueError):
        return []


def _booted_s() -> float | None:
    """Return the Unix time of the machine's start, as psutil has it."""
    found = re.search(rb"^btime (\d+)", _read("", "stat"), re.MULTILINE)
    return float(found[1]) if found else None


def _read(pid: int | str, name: str) -> bytes:
    """Return a file of the kernel's about a process; nothing where it may not be read."""
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 - the same
            return file.read()
    except OSError:
        return b""


def _namespace(proc: Path) -> str:
    try:
        return str((proc / "self/ns/pid").readlink())
    except OSError:
        return _FIRST_NAMESPACE  # a kernel without such namespaces


class GpuProcesses:
    """Lists the processes, by the newest form of the calls that the driver has."""

    def __init__(self) -> None:
        self._facts = ProcessFacts()
        self._versions: dict[tuple[str, str], int] = {}
        self._last: dict[str, tuple[float, Listed]] = {}
        """Monotonic time and list of each GPU (UUID) that told its processes last."""
        self.unlisted: dict[str, State] = {}
        """GPUs (UUID) of which nobody knew the processes at the last reading: those of before, if
        it ever listed any, do not hold any more."""

    def read(self, nvml: Any, gpus: Sequence[tuple[Gpu, Any]]) -> tuple[GpuProcess, ...] | None:
        """Return those of the GPUs (with their handles); None where no GPU can say.

        A GPU that fails has those that it listed last, for `LISTING_HOLDS_S`; then it is among
        `unlisted`. Raises LibraryGoneError.
        """
        parents = {gpu.parent_uuid for gpu, _ in gpus}
        found: list[GpuProcess] = []
        is_known = False
        self.unlisted.clear()
        here = cuda_processes() if self._facts.is_contained else {}
        for gpu, handle in gpus:
            if gpu.uuid in parents:
                continue  # its instances say it, each for itself
            listed = self._list(nvml, gpu, handle)
            if listed is None:
                listed = self._of_before(gpu)
            if listed is None:
                is_new = gpu.uuid not in self._last
                self.unlisted[gpu.uuid] = State.NOT_SUPPORTED if is_new else State.STALE
                continue
            is_known = True
            ours = self._ours(nvml, handle, listed, here, len(gpus)) if here else {}
            found.extend(self._describe(nvml, gpu, handle, listed, ours))
        self._facts.forget_others({process.pid for process in found})
        return tuple(found) if is_known or not gpus else None

    def forget_versions(self) -> None:
        """Begin again with the newest calls: the library may be another one now."""
        self._versions.clear()

    def _list(self, nvml: Any, gpu: Gpu, handle: Any) -> Listed | None:
        kinds = {kind: self._of_kind(nvml, gpu, handle, kind) for kind in KINDS}
        if kinds["compute"] is None:  # who draws is not all
            return None
        listed: Listed = {}
        for kind, processes in kinds.items():
            for pid, memory_bytes in processes or ():
                listed.setdefault(pid, (kind, memory_bytes))  # many compute and draw
        self._last[gpu.uuid] = time.monotonic(), listed
        return listed

    def _of_before(self, gpu: Gpu) -> Listed | None:
        """Return what a GPU listed last, as far as that still holds."""
        listed_s, listed = self._last.get(gpu.uuid, (-inf, {}))
        return listed if time.monotonic() - listed_s <= LISTING_HOLDS_S else None

    def _of_kind(
        self, nvml: Any, gpu: Gpu, handle: Any, kind: str
    ) -> list[tuple[int, int | None]] | None:
        first = self._versions.get((gpu.uuid, kind), 0)
        for i in range(first, len(_VERSIONS)):
            try:
                processes = _running(nvml, handle, KINDS[kind], _VERSIONS[i])
            except (nvml.NVMLError, AttributeError) as error:
                code = codes.code_of(error)
                if code in codes.LIBRARY_GONE:
                    raise codes.LibraryGoneError from error
                if code not in codes.OLDER_WAY:
                    return None
            else:
                self._versions[gpu.uuid, kind] = i
                return processes
        return None

    def _ours(
        self, nvml: Any, handle: Any, listed: Listed, here: dict[int, frozenset[int]], gpus: int
    ) -> dict[int, int | None]:
        """Return this container's processes of a GPU, each with its number in the driver's list."""
        try:
            minor = int(nvml.nvmlDeviceGetMinorNumber(handle))
        except (nvml.NVMLError, AttributeError):
            minor = None
        alone = [pid for pid, opened in here.items() if opened == {minor} or gpus == 1]
        unknown = [pid for pid in listed if self._facts.is_unknown(pid)]
        return in_their_place([*listed], unknown, [pid for pid in alone if pid not in listed])

    def _describe(
        self, nvml: Any, gpu: Gpu, handle: Any, listed: Listed, ours: dict[int, int | None]
    ) -> Iterator[GpuProcess]:
        busy = _utilization(nvml, handle) if listed else None
        known_as = {there: pid for pid, there in ours.items() if there is not None}
        for pid, (kind, memory_bytes) in listed.items():
            share = None if busy is None else busy.get(pid, 0.0)
            who = known_as.get(pid, pid)
            yield self._facts.describe(gpu.uuid, who, kind, memory_bytes, share)
        for pid, there in ours.items():
            if there is None:  # how much it holds and uses is not told
                yield self._facts.describe(gpu.uuid, pid, "compute", None, None)


class _FirstProcess(Structure):
    """`nvmlProcessInfo_v1_t`, which nvidia-ml-py does not have any more."""

    _fields_ = (("pid", c_uint), ("usedGpuMemory", c_ulonglong))


class _Process(Structure):
    """`nvmlProcessInfo_v2_t`, which the third form has as well."""

    _fields_ = (*_FirstProcess._fields_, ("gpu_instance", c_uint), ("compute_instance", c_uint))


def _running(nvml: Any, handle: Any, kind: str, version: str) -> list[tuple[int, int | None]]:
    """Return PID and bytes on the GPU of each, past nvidia-ml-py's own way, which copies every
    structure into an object of Python: a tenth of the sampler's time with eight processes a GPU."""
    function = getattr(nvml.nvmlLib, f"nvmlDeviceGet{kind}RunningProcesses{version}")
    count = c_uint(0)
    code = function(handle, byref(count), None)
    if code == nvml.NVML_ERROR_INSUFFICIENT_SIZE:
        count.value = 2 * count.value + 5  # some may start meanwhile
        processes = ((_Process if version else _FirstProcess) * count.value)()
        code = function(handle, byref(count), processes)
        if not code:
            used = [(each.pid, each.usedGpuMemory) for each in processes[: count.value]]
            return [(pid, None if memory == _NOT_AVAILABLE else memory) for pid, memory in used]
    if code:
        raise nvml.NVMLError(code)
    return []


def _utilization(nvml: Any, handle: Any) -> dict[int, float] | None:
    """Return how busy each process keeps the SMs, in percent; None where the driver cannot say.

    A process without a sample was idle.
    """
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, 0)
    except (nvml.NVMLError, AttributeError) as error:
        return {} if codes.code_of(error) == codes.NOT_FOUND else None
    newest_us = max((sample.timeStamp for sample in samples), default=0)
    if newest_us > _EPOCH_US and time.time() * 1e6 - newest_us > 2 * _WINDOW_US:
        return {}  # what they were before they rested
    shares: dict[int, list[int]] = {}
    for sample in samples:
        if sample.smUtil <= 100 and sample.timeStamp >= newest_us - _WINDOW_US:
            shares.setdefault(sample.pid, []).append(sample.smUtil)
    return {pid: sum(values) / len(values) for pid, values in shares.items()}


def cuda_processes(proc: Path = Path("/proc")) -> dict[int, frozenset[int]]:
    """Return the minor numbers of the GPUs that each CUDA process has open, by its number.

    A process that computes on a GPU has the GPU's device file open, and that of unified memory,
    which NVML does not open. Processes of other users are left out, unless this one may look into
    them.
    """
    found: dict[int, frozenset[int]] = {}
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            opened = _opened(folder / "fd")
            minors = frozenset(int(match[1]) for each in opened if (match := _GPU.fullmatch(each)))
            if UNIFIED_MEMORY in opened and minors:
                found[int(folder.name)] = minors
    return found


def _opened(folder: Path) -> set[str]:
    found: set[str] = set()
    with contextlib.suppress(OSError):  # another user's, or it has ended
        for link in folder.iterdir():
            with contextlib.suppress(OSError):
                found.add(str(link.readlink()))
    return found


def in_their_place(listed: list[int], unknown: list[int], here: list[int]) -> dict[int, int | None]:
    """Return which number of the driver's list each process of this container has on one GPU.

    `listed` are the driver's, `unknown` those of them of whom nothing is known, `here` the CUDA
    processes that have this GPU alone open. Where the driver lists none they have no number (None);
    where it lists one that is not known and there is one, they are the same; else nothing is said.
    """
    if not listed:
        return dict.fromkeys(here)
    if len(unknown) == len(here) == 1:
        return {here[0]: unknown[0]}
    return {}
