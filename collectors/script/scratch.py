"""A private view of the file system for one run: what the script writes is gone afterwards.

A script that is run for trial must not cost its user anything: no `best.pt` that is overwritten
after three batches, no run in a tracker, no push to a hub. In the view the script finds every file
that it would find without, can write where it could write without, and reads back what it has
written; outside, no byte changes. See `enter_scratch.py` for how that is done. Large data is not
copied: reading goes through, and a file is copied when it is first opened for writing.

Besides files, the script has a network of its own with nothing but the loopback in it, so neither a
server on this machine nor one elsewhere can be reached, unless that is allowed.

What a view does not keep away, as it is made against accidents and not against malice:

* A process may reach others of the same user by their id: kill them, or find the true files behind
  `/proc/<process>/root`. With root's rights it may unmount what is laid over its files.
* Devices stay what they are, as GPUs have to work; so do block devices where the user may write to
  them, System V shared memory, POSIX message queues, and what the kernel offers in /proc and /sys.
* Sockets of servers that have a name in the file system (docker.sock, X11, a database, an agent
  with keys) cannot be reached through an overlay, but can in a folder that is only read-only.

Where a view differs from what the script would find without one:

* Hard links of a file that is written to part: the other names keep the old content.
* What is written goes to the folder for temporary files (TMPDIR), which has to have room for it.
* Compiled kernels and other caches are read, but what is added to them is gone as well.
* Flushing to the disk (`fsync`) does nothing, as nothing is kept.
* In a user namespace, as there is for users other than root, the script knows one user and one
  group: files of others stay as they are, even if their group may write to them. A folder that has
  other mounts in it gets no overlay: there, only the folders in it can be written to. And renaming
  a folder that was there before fails, as between two disks, so that programs copy it.
* Folders of the system that the user cannot write to, the folder `/` itself, and file systems that
  the kernel lays no overlay over are read-only: writing there fails.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gpuadvisor.collectors.script.contents import ContentReader
from gpuadvisor.collectors.script.run_folder import remove_folder, run_folder
from gpuadvisor.domain.rehearsal import WrittenFile
from gpuadvisor.errors import AdvisorError

WRAPPER = Path(__file__).with_name("enter_scratch.py")
DELETED = -1
"""Size of a file that was there before and is not any more."""
MEMORY_SHARE = 0.25
"""Part of the free memory that files may take where the disk can hold no layer. The script needs
memory itself, and one that writes more gets the error of a full disk."""
MOST_WRITTEN = 10_000
"""Most files that are listed. A script that writes more writes a cache."""
PROBE_S = 20.0
"""Longest time that trying a view may take; it takes 0.05 s."""
MPS_FOLDER = "/tmp/nvidia-mps"
"""Where the Multi-Process Service listens unless CUDA_MPS_PIPE_DIRECTORY says otherwise: clients
that cannot reach it cannot use a GPU in exclusive mode (docs.nvidia.com/deploy/mps)."""

OFFLINE = {
    # Files below ./wandb, no server: docs.wandb.ai/models/support/run_wandb_offline
    "WANDB_MODE": "offline",
    # huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # huggingface.co/docs/transformers/installation#offline-mode
    "TRANSFORMERS_OFFLINE": "1",
    # huggingface.co/docs/datasets/loading#offline
    "HF_DATASETS_OFFLINE": "1",
    # Files below ./.neptune: docs.neptune.ai/logging/offline
    "NEPTUNE_MODE": "offline",
    # huggingface.co/docs/transformers/main_classes/callback: `comet_ml.start` then goes offline
    "COMET_START_ONLINE": "0",
    # docs.swanlab.cn/en/api/cli-swanlab-offline.html
    "SWANLAB_MODE": "offline",
    # clear.ml/docs/latest/docs/guides/set_offline
    "CLEARML_OFFLINE_MODE": "1",
    # Seven trials of a server that cannot be reached take minutes: mlflow/environment_variables.py
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    # Asks for newer models' files: docs.ultralytics.com/reference/utils (`is_online`)
    "YOLO_OFFLINE": "True",
}
"""Variables with which trackers and hubs work without a server and do not wait for one. They are a
courtesy: without a network nothing is sent anyhow."""
MLFLOW_SERVER = "MLFLOW_TRACKING_URI"
"""Where MLflow's runs go: mlflow.org/docs/latest/ml/tracking/backend-stores."""
MLFLOW_FILES = "MLFLOW_ALLOW_FILE_STORE"
"""Variable without which MLflow's newest versions write no runs to plain files."""
MLFLOW_REMOTE = ("http", "databricks", "postgresql", "mysql", "mssql")


class NoPrivateViewError(AdvisorError):
    """The script was not run, as it could not be given a private view of the file system."""


@dataclass
class View:
    """A private view for one command, and what the command wrote in it."""

    wrapper: tuple[str, ...]
    """What comes before the command: a program that enters the view and becomes the command."""
    environment: Mapping[str, str]
    """Variables to set for the command."""
    scratch: Path
    folder: Path
    """Working directory of the command."""
    _listener: socket.socket

    def check(self, ended: bool) -> None:
        """Raise NoPrivateViewError if the command was not run, for want of a private view.

        `ended` says that the command ended by itself. AdvisorError if there is no such command.
        """
        state = self._state()
        if "failed" in state:
            raise AdvisorError(state["failed"])
        if "refused" in state or (ended and not state):
            why = state.get("refused", "entering it failed")
            raise NoPrivateViewError(f"the script was not run: {_advised(why)}")

    def read_only(self) -> tuple[str, ...]:
        """Return the folders that the user can write to and the command could not."""
        return tuple(self._state().get("read_only", ()))

    def written(self, contents: bool = False) -> dict[str, WrittenFile]:
        """Return the files that were created, changed or deleted, and what is in them if asked.

        Names are relative to the working directory, or absolute where they are not in it. Call it
        when the command has ended.
        """
        found: dict[str, WrittenFile] = {}
        reader = ContentReader()
        state = self._state()
        # The working directory's first, as the list is bounded.
        layers = sorted(
            state.get("layers", ()), key=lambda each: not self.folder.is_relative_to(each["path"])
        )
        with _received(self._listener) as memories:
            for layer in layers:
                memory = layer["memory"]
                place = (
                    self.scratch if memory is None else Path(f"/proc/self/fd/{memories[memory]}")
                )
                upper = place / layer["layer"] / "upper" if layer["layer"] else place
                for change in _changes(upper, Path(layer["path"])):
                    name = _shown(change.shown, self.folder)
                    if contents and change.place is not None:
                        found[name] = reader.read(change.place, name, change.size)
                    else:
                        found[name] = WrittenFile(change.size)
                    if len(found) >= MOST_WRITTEN:
                        return found
        return found

    def _state(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.scratch / "state.json").read_text("utf-8")))
        except (OSError, ValueError):
            return {}


@contextlib.contextmanager
def scratch(run: Path, folder: str | None = None, through: Iterable[Path] = ()) -> Iterator[View]:
    """Prepare a private view for one command, and remove what it wrote at the end.

    `run` is the folder of the run and holds what is written. The command has it in common with us,
    and the folders in `through`, which exist. `folder` is its working directory. Nothing is
    mounted before the command starts or after its last process has ended.
    """
    import psutil

    own = run / "scratch"
    own.mkdir(mode=0o700)
    shared = [run, *through, *_multi_process_service()]
    request = {
        "parent": os.getpid(),
        "through": sorted({str(path.resolve()) for path in shared}),
        "folders": _folders(folder),
        "memory_bytes": int(psutil.virtual_memory().available * MEMORY_SHARE),
    }
    (own / "request.json").write_text(json.dumps(request), "utf-8")
    wrapper = (sys.executable, "-I", "-S", str(WRAPPER), str(own.resolve()), "--")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        _bind(listener, own)
        working = Path(folder or ".").resolve()
        try:
            yield View(wrapper, _offline(), own, working, listener)
        finally:
            remove_folder(own)


def _folders(folder: str | None) -> list[str]:
    """Return the folders that a script writes to first of all."""
    places = (folder or ".", os.environ.get("HOME", "/"), tempfile.gettempdir())
    return sorted({os.path.realpath(place) for place in places})


def _bind(listener: socket.socket, folder: Path) -> None:
    """Listen in a folder, by a descriptor: the path of a socket has room for 107 bytes only."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{descriptor}/layers.socket")
    finally:
        os.close(descriptor)
    listener.setblocking(False)


def _offline() -> dict[str, str]:
    environment = dict(OFFLINE)
    if os.environ.get(MLFLOW_SERVER, "").startswith(MLFLOW_REMOTE):
        environment[MLFLOW_FILES] = "true"
        environment[MLFLOW_SERVER] = f"file:{tempfile.gettempdir()}/mlruns"
    return environment


def _multi_process_service() -> Iterator[Path]:
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or MPS_FOLDER)
    if folder.is_dir():
        yield folder


@contextlib.contextmanager
def _received(listener: socket.socket) -> Iterator[list[int]]:
    """Receive descriptors of the file systems in memory, which nothing else keeps alive."""
    descriptors: list[int] = []
    with contextlib.suppress(BlockingIOError):
        descriptors = socket.recv_fds(listener, 16, 16, socket.MSG_DONTWAIT)[1]
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


# -- what was written ----------------------------------------------------------------------------


class _Change(NamedTuple):
    """A file that an overlay's upper layer adds, changes or hides."""

    shown: Path
    """Where the command saw it."""
    size: int
    """In bytes; `DELETED` where it is hidden."""
    place: Path | None = None
    """Where its content is to be found."""


def _changes(upper: Path, lower: Path) -> Iterator[_Change]:
    """Yield what an overlay's upper layer changes of the folder `lower`, file by file.

    See docs.kernel.org/filesystems/overlayfs.html: a device 0/0 hides what is below, an opaque
    folder hides all that is below it, and one with `redirect` was another folder before.
    """
    yield from _compare(upper, lower, lower, lower)


def _compare(upper: Path, shown: Path, lower: Path, root: Path) -> Iterator[_Change]:
    for entry in _entries(upper):
        path, below = shown / entry.name, lower / entry.name
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            yield from (_Change(gone, DELETED) for gone in _files(below))
        elif entry.is_dir(follow_symlinks=False):
            yield from _compare_folder(Path(entry.path), path, below, root)
        elif _is_content(status.st_mode) and not _is_same(status, below):
            yield _Change(path, status.st_size, Path(entry.path))


def _compare_folder(upper: Path, shown: Path, below: Path, root: Path) -> Iterator[_Change]:
    """Yield what a folder of an upper layer changes."""
    moved = _attribute(upper, "redirect")
    if moved:
        source = root / moved[1:] if moved.startswith("/") else below.parent / moved
        changed = {each.shown: each for each in _compare(upper, shown, source, root)}
        for file in _files(source):  # they are now here, but for what was changed since
            place = shown / file.relative_to(source)
            changed.setdefault(place, _Change(place, _size(file), file))
        yield from (each for each in changed.values() if each.size != DELETED)
        return
    if _attribute(upper, "opaque") == "y":
        again = {each.shown: each for each in _compare(upper, shown, below, root)}
        kept = set(_files(upper))
        for file in _files(below):
            if upper / file.relative_to(below) not in kept:
                again[file] = _Change(file, DELETED)
        yield from again.values()
        return
    yield from _compare(upper, shown, below, root)


def _is_content(mode: int) -> bool:
    """Say whether it is a file or a link, and no socket or pipe."""
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _is_same(status: os.stat_result, below: Path) -> bool:
    """Say whether a file was only opened for writing, or touched in its rights alone."""
    try:
        old = below.lstat()
    except OSError:
        return False
    same = (old.st_size, old.st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    return same and stat.S_IFMT(old.st_mode) == stat.S_IFMT(status.st_mode)


def _files(path: Path) -> Iterator[Path]:
    """Yield the files in a folder and those in it, or the file itself; bounded."""
    if path.is_symlink() or path.is_file():
        yield path
        return
    count = 0
    for folder, _, names in os.walk(path):
        for name in names:
            yield Path(folder, name)
            count += 1
            if count >= MOST_WRITTEN:
                return


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:  # the script took its rights away
        return []


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _attribute(path: Path, name: str) -> str:
    """Return an overlay's own attribute of a file in an upper layer; empty where it has none."""
    for kind in ("trusted", "user"):
        with contextlib.suppress(OSError):
            return os.getxattr(path, f"{kind}.overlay.{name}").decode("utf-8", "surrogateescape")
    return ""


def _shown(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


# -- whether it works here -----------------------------------------------------------------------


@functools.cache
def unavailable() -> str | None:
    """Say why scripts can have no private view here, and the way out; None where they can.

    It is found out by entering one.
    """
    if sys.platform != "linux":
        return "private views of the file system need Linux"
    try:
        with run_folder() as run, scratch(run) as view:
            done = subprocess.run(
                view.wrapper, capture_output=True, text=True, timeout=PROBE_S, check=False
            )
            state = view._state()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"trying a private view of the file system failed: {error}"
    if done.returncode == 0 and state.get("layers"):
        return None
    return _advised(state.get("refused") or done.stderr.strip() or "it was ended")


def _advised(why: str) -> str:
    """Return why there is no private view, with what can be done about it."""
    return f"no private view of the file system: {why}; {_way_out()}"


def _way_out() -> str:
    if _in_container():
        return (
            "start the container with the right to mount (docker run --cap-add SYS_ADMIN"
            " --security-opt apparmor=unconfined)"
        )
    if _sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "this system keeps user namespaces from programs: run gpuadvisor as root, or allow them"
            " with `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
        )
    if _sysctl("kernel/unprivileged_userns_clone") == "0":
        return (
            "this system has no user namespaces for users: run gpuadvisor as root, or allow them"
            " with `sudo sysctl kernel.unprivileged_userns_clone=1`"
        )
    if _sysctl("user/max_user_namespaces") == "0":
        return (
            "this system has no user namespaces: run gpuadvisor as root, or allow them with"
            " `sudo sysctl user.max_user_namespaces=15000`"
        )
    return "run gpuadvisor as root, or on a system with overlayfs and user namespaces"


def _in_container() -> bool:
    return any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv")))


def _sysctl(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""
