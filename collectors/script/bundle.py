"""The folder that goes on the script's PYTHONPATH: the start-up file and the few modules it needs.

A folder and not a zip, because Python keeps compiled bytecode beside a file and not in a zip, and
each of a script's processes loads it. It works for any interpreter that has torch, whether or not
gpuadvisor is installed there. A package says itself which of its modules go in.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from gpuadvisor.errors import AdvisorError

_DECLARATION = re.compile(r"^TARGET_MODULES = (.+)$", re.MULTILINE)
"""The line with which a package names those of its modules that may be imported in the target
process: `("base",)`, or `("*",)` for all. They import only the standard library and each other at
their top. In a package without this line nobody looks for others."""

KEPT_S = 30 * 86_400.0
"""Time without use after which the folder of another version goes: longer than a study lasts."""


def bundle_folder() -> Path:
    """Return the folder for PYTHONPATH, written on first use and whenever the code has changed
    since another process wrote it: this one stays with the code that it has begun with."""
    digest, modules = _bundle()
    folder = _cache() / f"harness-{digest[:16]}"
    if (folder / "sitecustomize.py").is_file():
        with suppress(OSError):  # of another user, or on a disk that cannot be written
            os.utime(folder)
    else:
        _write(folder, modules)
        _forget_old(folder.parent)
    return folder


def _forget_old(cache: Path) -> None:
    """Remove what other versions of gpuadvisor left behind."""
    for folder in cache.glob("*harness-*"):  # half of one is hidden, like a draft
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > KEPT_S:
                gone = folder.rename(cache / f".harness-gone-{os.getpid()}-{folder.name[-8:]}")
                shutil.rmtree(gone, ignore_errors=True)


@cache
def _bundle() -> tuple[str, dict[str, bytes]]:
    """Return all modules and their digest: a study asks some thousand times, 6 ms each."""
    modules = dict(_modules())
    digest = hashlib.sha256()
    for name, text in sorted(modules.items()):
        digest.update(f"{name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest(), modules


def _modules() -> Iterator[tuple[str, bytes]]:
    yield from _declared(files("gpuadvisor"), "library/gpuadvisor")
    start = files("gpuadvisor.collectors.script.child") / "sitecustomize.py"
    yield "sitecustomize.py", start.read_bytes()


def _declared(package: Traversable, place: str) -> Iterator[tuple[str, bytes]]:
    """Yield the modules that a package, and those in it, declare for the target process."""
    try:
        text = (package / "__init__.py").read_text("utf-8")
    except OSError:  # a folder of other files
        return
    declared = _DECLARATION.search(text)
    if declared is None:
        return
    yield f"{place}/__init__.py", text.encode()
    names: tuple[str, ...] = ast.literal_eval(declared[1])
    for entry in package.iterdir():
        stem, _, kind = entry.name.partition(".")
        if not kind:
            yield from _declared(entry, f"{place}/{entry.name}")
        elif kind == "py" and stem != "__init__" and ("*" in names or stem in names):
            yield f"{place}/{entry.name}", entry.read_bytes()


def _cache() -> Path:
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        raise AdvisorError("no home folder is known: set HOME or XDG_CACHE_HOME") from None
    folder = Path(base).absolute() / "gpuadvisor"  # the script may change its folder
    if os.pathsep in str(folder):
        raise AdvisorError(
            f"Python cannot import from {folder}, as its name holds a {os.pathsep!r}: set"
            " XDG_CACHE_HOME to another folder"
        )
    return folder


def _write(folder: Path, modules: dict[str, bytes]) -> None:
    """Write beside the final place and rename, so that no process sees half of it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".harness-", dir=folder.parent))
        try:
            for name, text in modules.items():
                path = draft / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text)
            try:
                draft.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was faster, and wrote the same
                    raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise AdvisorError(
            f"cannot write to the cache folder {folder.parent}: {error.strerror}; "
            "free some space, or set XDG_CACHE_HOME to a folder that can be written"
        ) from error
