"""Locks between processes. The system frees them when their holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gpuadvisor.errors import StoreError
from gpuadvisor.storage.home import HOME_VARIABLE, writable_folder


class Held(Exception):  # noqa: N818 - an answer, which the caller turns into words
    """Somebody else has the lock."""

    def __init__(self, process: str) -> None:
        super().__init__(process)
        self.process = process
        """The holder's process id; empty if it has not been written yet."""


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock that this file stands for; without `wait`, Held if another has it.

    Two holders exclude each other in one process as well. The file is gone afterwards.
    """
    file = _acquire(path, wait=wait)
    try:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
    finally:
        path.unlink(missing_ok=True)  # before the lock is freed: nobody else's file then
        file.close()


def _acquire(path: Path, *, wait: bool) -> IO[str]:
    writable_folder(path.parent)
    while True:
        try:
            file = path.open("a+", encoding="ascii")
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
