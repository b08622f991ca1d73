"""Locks between processes. The system frees them when their holder ends, however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from gpuadvisor.errors import StoreError
from gpuadvisor.storage.home import HOME_VARIABLE, PRIVATE_FILE, home, writable_folder

PREFIX = "gpuadvisor-device-"
"""Begin of a device's abstract socket, as `ss -xa` shows it behind an `@`."""
BACKLOG = 4096
"""Processes that may ask for the holder while one study runs; Linux allows no more by default
(net.core.somaxconn). To those beyond it the holder has no name."""
ATTEMPTS, PAUSE_S = 20, 0.01
"""A holder that is not listening yet, or not any more, gets 0.2 s: between its `bind` and its
`listen` are microseconds. What does not listen after that never will."""
_CREDENTIALS = struct.Struct("iII")
"""struct ucred of unix(7): process, user, group."""


class Held(Exception):  # noqa: N818 - an answer, which the caller turns into words
    """Somebody else has the lock."""

    def __init__(self, process: str, user: str = "") -> None:
        super().__init__(process)
        self.process = process
        """The holder's process id; empty where it is not known."""
        self.user = user
        """Name of the holder's user, where that is another than ours; else empty."""


_ours: set[socket.socket | IO[str]] = set()
"""Sockets and files by which this process holds locks."""


def _leave_to_parent() -> None:
    """Close, in a forked child, what its parent holds: the lock would outlive the parent."""
    while _ours:
        _ours.pop().close()


os.register_at_fork(after_in_child=_leave_to_parent)


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock that this file stands for; without `wait`, Held if another has it.

    Two holders exclude each other in one process as well. The file is gone afterwards.
    """
    file = _acquire(path, wait=wait)
    _ours.add(file)
    try:
        with suppress(OSError):  # on a full disk it is held without a name
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode("ascii"))
        yield
    finally:
        path.unlink(missing_ok=True)  # before the lock is freed: nobody else's file then
        _ours.discard(file)
        file.close()


def holder(path: Path) -> int | None:
    """Return the process that holds the lock of this file; None where nobody does, or on a system
    that does not tell. The lock is not touched: whoever wants it meanwhile gets it."""
    try:
        ending = f":{path.stat().st_ino}"
        process = path.read_text("ascii")
        held = Path("/proc/locks").read_text("ascii").splitlines()
    except (OSError, ValueError):
        return None
    is_held = any(" FLOCK " in line and f"{ending} " in line for line in held)
    return int(process) if is_held and process.isdecimal() else None


def _acquire(path: Path, *, wait: bool) -> IO[str]:
    writable_folder(path.parent)
    while True:
        try:
            # Who may read it could hold its lock, and so keep all others from it.
            opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
            file = os.fdopen(opened, "r+", encoding="ascii")
        except OSError as error:
            raise StoreError(
                f"The lock {path} cannot be made ({error.strerror}): make its folder writable."
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _is_current(file, path):
                return file
        except BlockingIOError:
            file.seek(0)
            holder = file.read()
            file.close()
            raise Held(holder) from None
        except OSError as error:
            file.close()
            raise StoreError(
                f"The file system of {path} has no locks ({error.strerror}): "
                f"set {HOME_VARIABLE} to a folder on a local disk."
            ) from error
        except BaseException:
            file.close()
            raise
        file.close()  # its last holder removed it while we waited: a lock on nothing


def _is_current(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


# -- devices -------------------------------------------------------------------------------------


@contextmanager
def device_locked(device: str) -> Iterator[None]:
    """Hold the lock on a device (a UUID, or `cpu`) of this machine; Held if another has it.

    On Linux it is an abstract Unix socket, which belongs to no folder: users and homes exclude
    each other, and the kernel frees it however its holder ends. Neither a forked child nor a
    script that we start keeps it. It is seen within one network namespace: a container with a
    namespace of its own is excluded only where it shares our home, through a file, which is all
    there is on other systems. Instances of one GPU (MIG) have a lock each, as each has its own
    multiprocessors and memory.
    """
    with ExitStack() as stack:
        if sys.platform == "linux":
            stack.enter_context(_socket_locked(PREFIX + device))
        name = f"device-{device}{_machine()}.lock".replace("/", "-")
        stack.enter_context(locked(home() / "locks" / name))
        yield


def _machine() -> str:
    """Return what tells this machine from others that share its home over a network."""
    try:
        identity = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
    except OSError:
        return ""
    return f"-{identity[:8]}"


@contextmanager
def _socket_locked(name: str) -> Iterator[None]:
    held = _bound(f"\0{name}"[:108])  # all that an address holds: unix(7)
    if held is None:
        yield
        return
    _ours.add(held)
    try:
        yield
    finally:
        _ours.discard(held)
        held.close()


def _bound(address: str) -> socket.socket | None:
    """Return a socket that listens there; None where a sandbox has none; Held if one is there."""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_S)
        try:
            mine = socket.socket(socket.AF_UNIX)
        except OSError:
            return None
        try:
            mine.bind(address)
            mine.listen(BACKLOG)
            return mine
        except OSError as error:
            mine.close()
            if error.errno != errno.EADDRINUSE:
                return None
        if (holder := _holder(address)) is not None:
            raise holder
    raise Held("")


class Peer(NamedTuple):
    """The other end of a Unix socket."""

    process: int
    """0 for one in another process namespace: a container of this network."""
    user: int
    group: int


def peer_of(channel: socket.socket) -> Peer:
    """Return who is at the other end, as the kernel tells it (SO_PEERCRED)."""
    return Peer(
        *_CREDENTIALS.unpack(
            channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
    )


def user_name(user: int) -> str:
    """Return the name of a user, the number where it has none; as processes are stored with."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _holder(address: str) -> Held | None:
    """Return who listens there; None where nobody does. It waits for nothing."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        try:
            asking.connect(address)
        except ConnectionRefusedError:
            return None
        except OSError:  # its backlog is full
            return Held("")
        seen = peer_of(asking)
    return Held(str(seen.process or ""), "" if seen.user == os.getuid() else user_name(seen.user))
