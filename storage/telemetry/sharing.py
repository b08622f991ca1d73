"""Who may read a store of telemetry: its owner, and a group, but for processes and their words."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from gpuadvisor.errors import StoreError
from gpuadvisor.storage.home import DATABASE, PRIVATE_FILE, SHARED_FILE, writable_folder

_SHARED = re.compile(r"(index|samples-\d{8})\.db.*|daemon\.json")
"""Names of files that the group may read. Others are their owner's: processes, the log, the lock.
"""
FOLDER = 0o750
"""Mode of the folder."""
INHERITED = 0o2000
"""The set-group-ID bit of a folder: files that are made in it get its group (inode(7)), also those
that SQLite makes beside others."""
GO_THROUGH = 0o010


def share(folder: Path, group: int) -> None:
    """Let a group (its number) read a store, created if need be, and everybody else nothing.

    The folder above, which has studies and profiles as well, may only be gone through. StoreError
    where permissions cannot be changed, as in a group that one is not in.
    """
    writable_folder(folder)
    try:
        os.chown(folder, -1, group)
        folder.chmod(FOLDER if group == os.getegid() else FOLDER | INHERITED)
        for path in filter(_is_ours, folder.iterdir()):
            os.chown(path, -1, group)
            path.chmod(SHARED_FILE if _SHARED.fullmatch(path.name) else PRIVATE_FILE)
        _open_way(folder.parent, group)
    except OSError as error:
        raise StoreError(
            f"The group {group} cannot be let into {folder} ({error.strerror}): its members may "
            "not be able to read telemetry."
        ) from error


def _is_ours(path: Path) -> bool:
    """Say whether it is a file of ours and nothing else: no link by which another one is meant."""
    status = path.lstat()
    is_file = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    return is_file and status.st_uid == os.geteuid()


def _open_way(home: Path, group: int) -> None:
    """Let the group through the folder above; a folder of another group is left as it is."""
    for path in filter(_is_ours, home.glob(f"{DATABASE}*")):
        path.chmod(PRIVATE_FILE)
    status = home.stat()
    is_theirs = status.st_gid == group
    if status.st_mode & 0o001 or (is_theirs and status.st_mode & GO_THROUGH):
        return
    if not is_theirs and status.st_mode & 0o060:
        raise PermissionError(errno.EPERM, f"{home} is another group's")
    os.chown(home, -1, group)
    home.chmod(status.st_mode & 0o7777 | GO_THROUGH)
