"""Whether a file's processes all run on one machine, which a write-ahead log needs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")

NETWORK_TYPES = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "glusterfs", "gpfs"}
    | {"lustre", "nfs", "nfs4", "panfs", "smb3", "smbfs", "wekafs"}
)
"""File systems on which two machines may meet. Home folders of clusters are on such ones."""


@cache
def is_shared_by_machines(folder: Path) -> bool:
    """Say whether the folder is on a network file system; False where the system does not tell.

    The index of a write-ahead log is in memory that processes share, so writers on two machines
    would destroy the database (sqlite.org/wal.html).
    """
    try:
        mounts = [line.split() for line in MOUNTS.read_text("utf-8", "replace").splitlines()]
    except OSError:
        return False
    resolved = folder.resolve()
    # The deepest one counts, and among equals the last one mounted. Spaces are written \040.
    points = [(Path(point.replace("\\040", " ")), kind) for _, point, kind, *_ in mounts]
    above = [each for each in points if resolved.is_relative_to(each[0])]
    deepest = max(reversed(above), key=lambda each: len(each[0].parts), default=(None, ""))
    return deepest[1] in NETWORK_TYPES
