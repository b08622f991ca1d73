"""Enter a private view of the file system and become a command: a program of its own.

Run as `python -I -S enter_scratch.py FOLDER -- COMMAND...`, where FOLDER holds `request.json` and
takes `state.json`, which says what was done. It imports nothing but the standard library, and
executes the command in its own process, so that process id, parent and descriptors stay the same.

The view is a mount namespace of the process, in a user namespace where the process may not mount
otherwise. First every mount becomes read-only there. Then overlays are laid over the folders in
which a script could write: what it changes goes to the scratch, and reading goes through to the
files below. What cannot have an overlay stays read-only. Nothing of this is seen outside, and the
kernel takes it all down with the last process in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import signal
import socket
import stat
import struct
import sys
from dataclasses import dataclass, field
from typing import Any

REFUSED = 121
"""Exit status where there is no private view: the command was not run."""

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
"""Flags of `unshare` and `mount`, from <linux/sched.h> and <linux/mount.h>."""
SYS_MOUNT_SETATTR = 442
"""The number of `mount_setattr`, on every architecture; there since Linux 5.12."""
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY, PR_SET_PDEATHSIG = -100, 0x8000, 1, 1
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
FLAGS = {"nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC}

KERNEL_FOLDERS = ("/proc", "/sys", "/dev")
"""Folders of devices and of the kernel's own files; no user's files are there but in /dev/shm."""
SYSTEM_FOLDERS = ("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr")
"""Folders of the system, that get an overlay only where the user could write in them."""
KERNEL_TYPES = frozenset((
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
    "devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "resctrl",
    "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
))  # fmt: skip
"""File systems that hold no user's files: an overlay of them has no meaning."""
SHARED_MEMORY = "/dev/shm"
MOST_DEPTH = 4
"""How deep in folders of others those of the user are looked for: /data/group/project/user. The
working directory, the home folder and the folder for temporary files are found at any depth."""

_libc = ctypes.CDLL(None, use_errno=True)


class RefusedError(Exception):
    """There is no private view here; says why."""


@dataclass
class Mount:
    """One mount of the namespace, as the kernel lists it."""

    identity: str
    path: str
    kind: str
    options: tuple[str, ...]

    @property
    def flags(self) -> int:
        return sum(FLAGS.get(option, 0) for option in self.options)


@dataclass
class Target:
    """A folder, or a mount, that is to be made private."""

    path: str
    descriptor: int
    """The folder as it is below, from before anything is laid over it."""
    flags: int
    overlay: bool
    """Whether it may have an overlay; else it is shown as it is, read-only."""
    writable: bool = False
    """Whether the user may write to it."""


@dataclass
class View:
    """The private view while it is built."""

    scratch: str
    request: dict[str, Any]
    in_user_namespace: bool = False
    layers: list[dict[str, Any]] = field(default_factory=list)
    """Overlays: `path`, `layer` (a folder in the scratch), `memory` (which of the file systems in
    memory holds it; None for the disk)."""
    read_only: list[str] = field(default_factory=list)
    """Folders that could not have an overlay."""
    memories: list[int] = field(default_factory=list)
    """Descriptors of file systems in memory that hold layers."""
    sockets: list[str] = field(default_factory=list)
    """Sockets of servers that no overlay keeps away."""
    memory: int | None = None
    disk_works: bool = True
    looks: int = 500
    """How many folders of others may yet be looked into for folders of the user. On a network's
    file system each takes up to 1 ms."""

    def __post_init__(self) -> None:
        self.wanted = set()
        """The folders that a script writes to first of all, with those that they are in."""
        for path in self.request["folders"]:
            while path != "/":
                self.wanted.add(path)
                path = os.path.dirname(path)

    # -- the namespace ---------------------------------------------------------------------------

    def enter(self) -> None:
        """Separate from the mounts, and the network, of the other processes."""
        wanted = CLONE_NEWNS | CLONE_NEWNET
        user, group = os.geteuid(), os.getegid()
        if _libc.unshare(wanted) != 0:
            _check(_libc.unshare(wanted | CLONE_NEWUSER), "make a user namespace")
            self.in_user_namespace = True
            known = {"uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
            for name, text in {"setgroups": "deny", **known}.items():
                with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                    file.write(text)
        _start_loopback()
        _mount(None, "/", None, MS_REC | MS_PRIVATE, None, "separate the mounts")

    def build(self) -> None:
        mounts = _mounts()
        for path in self.request["through"]:
            _mount(path, path, None, MS_BIND | MS_REC, None, f"keep {path}")
        through = [(path, _open(path)) for path in self.request["through"]]
        writable = [p for p, fd in through if not os.fstatvfs(fd).f_flag & os.ST_RDONLY]
        scratch = _open(self.scratch)
        targets = self._targets(mounts)
        shared_memory = os.path.isdir(SHARED_MEMORY) and _open(SHARED_MEMORY)
        _make_read_only(mounts, writable)
        path = f"{_through(scratch)}/memory"
        os.mkdir(path, 0o700)
        self.memory = self._mount_memory(path, self.request["memory_bytes"])
        for number, target in enumerate(targets):
            try:
                self._cover(target, number, scratch)
            except RefusedError:
                if os.path.lexists(target.path) and _is_mounted(target.descriptor):
                    raise  # else somebody has unmounted and removed it meanwhile
        if shared_memory:
            self._cover_shared_memory(shared_memory, scratch)
        for path in self.sockets:
            _try_mount(os.devnull, path, None, MS_BIND, None)  # or it is not for us to use
        for path, descriptor in through:
            _mount(_through(descriptor), path, None, MS_BIND | MS_REC, None, f"keep {path}")
        # What the layers hold is nothing to look at, and removing it would confuse the overlays.
        _mount("none", self.scratch, "tmpfs", MS_RDONLY, "size=4k,mode=700", "hide the scratch")

    # -- what is covered -------------------------------------------------------------------------

    def _targets(self, mounts: list[Mount]) -> list[Target]:
        """Return what is to be covered, what is outside before what is in it."""
        targets: list[Target] = []
        for entry in sorted(os.scandir("/"), key=lambda entry: entry.name):
            if entry.path in KERNEL_FOLDERS or not entry.is_dir(follow_symlinks=False):
                continue
            if entry.path in SYSTEM_FOLDERS and not os.access(entry.path, os.W_OK):
                continue
            if self.in_user_namespace:
                self._add_writable(entry.path, mounts, targets, 1, False)
                continue
            for each in (entry.path, *_beneath(entry.path, mounts)):
                self._take(each, mounts, targets)
        return targets

    def _add_writable(
        self, path: str, mounts: list[Mount], targets: list[Target], depth: int, covered: bool
    ) -> None:
        """Add a folder, and those in it that need an overlay of their own in a user namespace.

        There, an overlay cannot change what is in a folder of another user, as it would have to
        copy that folder and its owner: each folder that the user may write to gets one. And where
        other mounts are in a folder the kernel lays none over it, as it would show what is below
        them. `covered` says that an outer folder has one.
        """
        if _mount_of(path, mounts).kind in KERNEL_TYPES:
            return  # looking into it could mount something
        writable, has_mounts = os.access(path, os.W_OK), bool(_beneath(path, mounts))
        if not has_mounts and (writable or not covered):
            self._take(path, mounts, targets)
        if writable and not has_mounts:
            return
        if writable:
            self.read_only.append(path)
        inner = {each for each in self.wanted if os.path.dirname(each) == path}
        if has_mounts or (depth < MOST_DEPTH and self.looks > 0):
            self.looks -= 1
            with contextlib.suppress(OSError):  # not for us to read: it stays as it is
                for entry in os.scandir(path):
                    if entry.is_dir(follow_symlinks=False):
                        inner.add(entry.path)
                    elif has_mounts and stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                        self.sockets.append(entry.path)
        for each in sorted(inner):
            self._add_writable(each, mounts, targets, depth + 1, covered or not has_mounts)

    def _take(self, path: str, mounts: list[Mount], targets: list[Target]) -> None:
        try:
            descriptor = _open(path)
        except OSError:  # hidden by another mount, gone, or not for us to see
            return
        mount = _mount_of(path, mounts)
        plain = mount.kind in KERNEL_TYPES or "ro" in mount.options or not os.path.isdir(path)
        writable = os.access(path, os.W_OK)
        targets.append(Target(path, descriptor, mount.flags, not plain, writable))

    def _cover(self, target: Target, number: int, scratch: int) -> None:
        if target.overlay and os.path.lexists(target.path):
            layer, memory = f"layers/{number}", self.memory
            if self.disk_works and self._overlay(target, scratch, layer, None):
                return
            if memory is not None and self._overlay(target, memory, layer, 0):
                self.disk_works = False
                return
            if target.writable:
                self.read_only.append(target.path)
        if not _leads_to(target.path, target.descriptor):  # it lies below an overlay now
            below = _through(target.descriptor)
            _mount(below, target.path, None, MS_BIND, None, f"show {target.path}")

    def _overlay(self, target: Target, place: int, layer: str, memory: int | None) -> bool:
        """Lay an overlay over a folder; False where the kernel refuses this one."""
        for name in ("upper", "work"):
            os.makedirs(f"{_through(place)}/{layer}/{name}", 0o700, exist_ok=True)
        status = os.fstat(target.descriptor)
        upper = _open(f"{_through(place)}/{layer}/upper")
        work = _open(f"{_through(place)}/{layer}/work")
        try:
            _look_alike(f"{_through(place)}/{layer}/upper", status, target.writable)
            # By descriptors, as a name could hold a comma or a colon.
            options = (
                f"lowerdir={_through(target.descriptor)},upperdir={_through(upper)},"
                f"workdir={_through(work)}"
            )
            # Without the second, a folder from below cannot be renamed; user namespaces have no
            # right to what it needs. Nothing is kept, so nothing needs to reach the disk.
            options += ",userxattr" if self.in_user_namespace else ",redirect_dir=on"
            for more in (",volatile", ""):  # since Linux 5.10
                if _try_mount("overlay", target.path, "overlay", target.flags, options + more):
                    break
            else:
                return False
        finally:
            os.close(upper)
            os.close(work)
        if os.statvfs(target.path).f_flag & os.ST_RDONLY:  # this disk cannot be an upper layer
            _check(_libc.umount2(os.fsencode(target.path), 0), f"uncover {target.path}")
            return False
        self.layers.append({"path": target.path, "layer": layer, "memory": memory})
        return True

    # -- memory ----------------------------------------------------------------------------------

    def _mount_memory(self, path: str, size: int, mode: str = "700") -> int:
        """Mount a file system of so many bytes in memory that may hold layers; return it."""
        options = f"size={size},mode={mode}"
        _mount("none", path, "tmpfs", MS_NOSUID | MS_NODEV, options, "mount a tmpfs")
        self.memories.append(_open(path))
        return self.memories[-1]

    def _cover_shared_memory(self, below: int, scratch: int) -> None:
        """Give the script shared memory of its own, of the same size as what there is.

        Where files are in it they can be read, through an overlay.
        """
        size = os.fstatvfs(below)
        if not os.listdir(SHARED_MEMORY):
            self._mount_memory(SHARED_MEMORY, size.f_blocks * size.f_frsize, "1777")
            number = len(self.memories) - 1
            self.layers.append({"path": SHARED_MEMORY, "layer": "", "memory": number})
            return
        path = f"{_through(scratch)}/shared"
        os.mkdir(path, 0o700)
        memory = self._mount_memory(path, size.f_bavail * size.f_frsize)
        target = Target(SHARED_MEMORY, below, MS_NOSUID | MS_NODEV, True)
        if not self._overlay(target, memory, "layer", len(self.memories) - 1):
            raise RefusedError(f"{SHARED_MEMORY} cannot have an overlay")


# -- the kernel ----------------------------------------------------------------------------------


def _check(status: int, what: str) -> None:
    if status != 0:
        raise RefusedError(f"cannot {what}: {os.strerror(ctypes.get_errno())}")


def _try_mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None
) -> bool:
    names = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    data = None if options is None else os.fsencode(options)
    return bool(_libc.mount(*names, ctypes.c_ulong(flags), data) == 0)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None, what: str
) -> None:
    _check(0 if _try_mount(source, target, kind, flags, options) else -1, what)


def _mounts() -> list[Mount]:
    """Return all mounts, those that hide others last."""
    mounts = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            words = left.split(" ")
            path = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[4])
            mounts.append(Mount(words[0], path, right.split(" ")[0], tuple(words[5].split(","))))
    return mounts


def _is_mounted(descriptor: int) -> bool:
    """Say whether the mount that a descriptor is on is still one: it goes with its folder.

    That folder may be seen through an overlay for a while after it was removed.
    """
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
        identity = next((line.split()[1] for line in file if line.startswith("mnt_id:")), None)
    return identity is None or any(mount.identity == identity for mount in _mounts())


def _beneath(path: str, mounts: list[Mount]) -> list[str]:
    """Return the mount points in a folder, what is outside before what is in it."""
    inside = {mount.path for mount in mounts if mount.path.startswith(path.rstrip("/") + "/")}
    return sorted(inside, key=lambda each: (each.count("/"), each))


def _mount_of(path: str, mounts: list[Mount]) -> Mount:
    """Return the mount that a path is on: the last of those with the longest path."""
    over = [m for m in mounts if m.path in ("/", path) or path.startswith(f"{m.path}/")]
    return max(enumerate(over), key=lambda pair: (len(pair[1].path), pair[0]))[1]


def _make_read_only(mounts: list[Mount], writable: list[str]) -> None:
    """Make every mount read-only but these, and the kernel's own.

    All at once where the kernel can do that; else one by one, but for those that cannot be reached.
    """
    kernel = tuple(f"{each}/" for each in KERNEL_FOLDERS)
    if _set_read_only("/", True, recursive=True):
        for mount in mounts:
            if f"{mount.path}/".startswith(kernel) and "ro" not in mount.options:
                _set_read_only(mount.path, False)
        for path in writable:
            if not _set_read_only(path, False):
                raise RefusedError(f"cannot keep {path}: {os.strerror(ctypes.get_errno())}")
        return
    for mount in mounts:
        if f"{mount.path}/".startswith(kernel):
            continue
        flags = MS_REMOUNT | MS_BIND | MS_RDONLY | mount.flags
        is_done = _try_mount(None, mount.path, None, flags, None)
        if not (is_done or not os.access(mount.path, os.F_OK) or _is_hidden(mount, mounts)):
            why = os.strerror(ctypes.get_errno())
            raise RefusedError(f"cannot make {mount.path} read-only: {why}")


def _is_hidden(mount: Mount, mounts: list[Mount]) -> bool:
    later = mounts[mounts.index(mount) + 1 :]
    return any(mount.path == m.path or mount.path.startswith(f"{m.path}/") for m in later)


def _set_read_only(path: str, value: bool, recursive: bool = False) -> bool:
    bit = MOUNT_ATTR_RDONLY
    attributes = struct.pack("QQQQ", bit if value else 0, 0 if value else bit, 0, 0)
    flags = AT_RECURSIVE if recursive else 0
    place = (ctypes.c_int(AT_FDCWD), os.fsencode(path), ctypes.c_uint(flags))
    size = ctypes.c_size_t(len(attributes))
    return bool(_libc.syscall(ctypes.c_long(SYS_MOUNT_SETATTR), *place, attributes, size) == 0)


def _start_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def _open(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _through(descriptor: int) -> str:
    """Return a path of what is behind a descriptor, whatever its name and what lies over it."""
    return f"/proc/self/fd/{descriptor}"


def _leads_to(path: str, below: int) -> bool:
    """Say whether a path still leads to what was opened there."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.stat(path), os.fstat(below))
    return False


def _look_alike(upper: str, status: os.stat_result, writable: bool) -> None:
    """Give an upper folder the rights of the folder below."""
    mode = status.st_mode & 0o7777
    try:
        os.chown(upper, status.st_uid, status.st_gid)
    except OSError:  # an owner that a user namespace does not know: it becomes the user's
        mode = mode if writable else mode & 0o7555
    os.chmod(upper, mode)


# -- the program ---------------------------------------------------------------------------------


def main(scratch: str, command: list[str]) -> int:
    """Enter the view and become the command; without one, return 0 when the view is there."""
    with open(f"{scratch}/request.json", encoding="utf-8") as file:
        request = json.load(file)
    folder = os.getcwd()
    status = os.stat(folder)
    own = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    view = View(scratch, request)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as parent:
        try:
            parent.connect(f"{_through(own)}/layers.socket")
            view.enter()
            view.build()
            _die_with(request["parent"])
            os.chdir(folder)  # it was below the overlay
            if view.in_user_namespace:
                _check_owner(folder, status, [layer["path"] for layer in view.layers])
        except Exception as error:  # whatever it is, the command is not run without its view
            _report(own, {"refused": str(error) or type(error).__name__})
            print(f"gpuadvisor: no private view of the file system: {error}", file=sys.stderr)
            return REFUSED
        state = {"layers": view.layers, "read_only": view.read_only}
        socket.send_fds(parent, [b"layers"], view.memories)
    if not command:
        _report(own, state)
        return 0
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and it is inherited
        signal.signal(number, signal.SIG_DFL)
    _report(own, state)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        _report(own, {"failed": f"cannot start {command[0]}: {error.strerror}"})
        return REFUSED


def _check_owner(folder: str, status: os.stat_result, overlays: list[str]) -> None:
    """Refuse a working directory whose files the script could not change as it can outside.

    A user namespace knows one user and one group. Files of others cannot be copied in it, and so
    not be written to, even if their group may.
    """
    if status.st_uid == os.geteuid() and status.st_gid != os.getegid():
        raise RefusedError(
            f"{folder} is of the group {status.st_gid}, which is not the user's first one (start"
            " gpuadvisor after `newgrp` with that group)"
        )
    if status.st_uid != os.geteuid() and os.access(folder, os.W_OK) and folder not in overlays:
        raise RefusedError(f"{folder} is another user's")


def _die_with(parent: int) -> None:
    """Have the kernel end this process when gpuadvisor ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise RefusedError("gpuadvisor has ended")


def _report(scratch: int, state: dict[str, Any]) -> None:
    """Write down what came of it, at once and whole."""
    draft = os.open(
        "state.draft", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600, dir_fd=scratch
    )
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.rename("state.draft", "state.json", src_dir_fd=scratch, dst_dir_fd=scratch)


if __name__ == "__main__":
    separator = sys.argv.index("--")
    raise SystemExit(main(sys.argv[1], sys.argv[separator + 1 :]))
