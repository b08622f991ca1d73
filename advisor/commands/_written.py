"""Reports that commands write: to a file, or to the standard output."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TextIO

from gpuadvisor.errors import UsageError


def file_name(name: str, fallback: str, ending: str = ".html") -> str:
    """Return a file name for what is called so: a name that the user chose may hold slashes."""
    return (re.sub(r"[^\w.+-]+", "-", name).strip(".-") or fallback) + ending


def write(path: Path, text: str, said_on: TextIO) -> None:
    """Write a file and say where it is; UsageError where it cannot be written."""
    try:
        path.write_bytes(text.encode("utf-8", "replace"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot write {path}: {reason}; choose another file") from None
    print(f"wrote {path.absolute()}", file=said_on)


def write_or_print(target: str, text: str, said_on: TextIO) -> None:
    """Write a file, or print the text where the target is `-`."""
    if target == "-":
        sys.stdout.write(text)
    else:
        write(Path(target), text, said_on)
