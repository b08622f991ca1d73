"""Files that are whole or as they were, whatever fills the disk or ends the program."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NAMES_KEPT = 50
"""Characters of a name that its draft has: at most 200 bytes of the 255 that a name may have."""
_OF_THE_SYSTEM = ("/dev", "/proc")
"""Where what looks like a file may be the output that a shell goes on to write."""


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Yield a file beside `path` that takes its place when the block ends well, with its mode.

    Where it does not, the draft is removed, and `path` is as it was. What is no file, such as a
    pipe, and a file in a folder that cannot be written, is yielded itself. OSError where the draft
    cannot take the place.
    """
    of_system = any(path.absolute().is_relative_to(each) for each in _OF_THE_SYSTEM)
    if of_system or (path.exists() and not _replaceable(path)):
        yield path
        return
    final = Path(os.path.realpath(path))  # a link stays one
    draft = final.with_name(f".{final.name[:_NAMES_KEPT]}.{os.getpid()}")
    try:
        yield draft
        with suppress(FileNotFoundError):
            draft.chmod(stat.S_IMODE(final.stat().st_mode))
        draft.replace(final)
    finally:
        draft.unlink(missing_ok=True)


def _replaceable(path: Path) -> bool:
    return path.is_file() and os.access(os.path.realpath(path.parent), os.W_OK | os.X_OK)
