"""Where gpuadvisor keeps what it has measured."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from gpuadvisor.errors import StoreError

HOME_VARIABLE = "GPUADVISOR_HOME"
DATABASE = "gpuadvisor.db"

PRIVATE = 0o700
"""Mode of a new folder, as the XDG specification has it; scripts' arguments may be secret."""
PRIVATE_FILE = 0o600
"""Mode of a new file, but those that the daemon lets a group read (`telemetry.files`)."""
SHARED_FILE = 0o640
"""Mode of those."""


def home() -> Path:
    """Return the folder of the database, created if need be.

    It is `$GPUADVISOR_HOME`, else `gpuadvisor` in `$XDG_DATA_HOME`, else
    `~/.local/share/gpuadvisor`. StoreError where it cannot be created or written.
    """
    return writable_folder(_chosen())


def readable_home() -> Path:
    """Return that folder for those who only read: it is not created, and need not be writable.

    A daemon's group may go through it to the telemetry, and not look into it.
    """
    return _chosen()


def database() -> Path:
    """Return the path of the database, whose folder then exists."""
    return home() / DATABASE


def writable_folder(folder: Path) -> Path:
    """Create the folder if need be and return it; StoreError if files cannot be made in it."""
    try:
        for each in reversed((folder, *folder.parents)):  # `parents=True` makes them for everybody
            each.mkdir(mode=PRIVATE, exist_ok=True)
    except OSError as error:
        in_the_way = isinstance(error, FileExistsError)  # a file where a folder should be
        why = os.strerror(errno.ENOTDIR) if in_the_way else error.strerror
        raise StoreError(
            f"The folder {folder} cannot be created ({why}): "
            f"set {HOME_VARIABLE} to a folder that you may write."
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(
            f"The folder {folder} cannot be written: "
            f"make it writable, or set {HOME_VARIABLE} to a folder that you may write."
        )
    return folder


def readable_folder(folder: Path) -> Path:
    """Return the folder, which may not exist; StoreError where it may not be looked into."""
    try:
        os.scandir(folder).close()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise StoreError(
            f"The folder {folder} cannot be read ({error.strerror}): ask its owner for the right "
            f"to read it, or set {HOME_VARIABLE} to another folder."
        ) from error
    return folder


def _chosen() -> Path:
    if own := os.environ.get(HOME_VARIABLE):
        return _expanded(own)
    data = os.environ.get("XDG_DATA_HOME", "")
    if Path(data).is_absolute():  # the specification has relative paths ignored
        return Path(data) / "gpuadvisor"
    return _expanded("~/.local/share/gpuadvisor")


def _expanded(folder: str) -> Path:
    try:
        return Path(folder).expanduser().absolute()
    except RuntimeError as error:  # no HOME, and no entry for this user: bare containers
        raise StoreError(
            f"There is no home folder for {folder}: set {HOME_VARIABLE} to a folder to write in."
        ) from error
