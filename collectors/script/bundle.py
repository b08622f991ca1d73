"""The folder that goes on the script's PYTHONPATH: the start-up file and the few modules it needs.

A folder and not a zip, because Python keeps compiled bytecode beside a file and not in a zip, and
each of a script's processes loads it. It works for any interpreter that has torch, whether or not
gpuadvisor is installed there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from gpuadvisor.errors import AdvisorError

PACKAGES: dict[str, tuple[str, ...]] = {
    "gpuadvisor": ("__init__.py", "errors.py", "section_times.py", "steps.py"),
    "gpuadvisor.domain": (),
    "gpuadvisor.collectors": ("__init__.py",),
    "gpuadvisor.collectors.script": ("__init__.py", "specification.py"),
    "gpuadvisor.collectors.script.child": (),
    "gpuadvisor.tuners": ("__init__.py", "base.py"),
    "gpuadvisor.tuners.knobs": (),
}
"""What may be imported in the target process, by package; no names mean all of its modules. They
import only the standard library and each other at their top."""

KEPT_S = 30 * 86_400.0
"""Time without use after which the folder of another version goes: longer than a study lasts."""


def bundle_folder() -> Path:
    """Return the folder for PYTHONPATH, written on first use and whenever the code changed."""
    modules = dict(_modules())
    digest = hashlib.sha256()
    for name, text in sorted(modules.items()):
        digest.update(f"{name}\0{len(text)}\0".encode() + text)
    folder = _cache() / f"harness-{digest.hexdigest()[:16]}"
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


def _modules() -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for package, names in PACKAGES.items():
        for entry in files(package).iterdir():
            if entry.name.endswith(".py") and (not names or entry.name in names):
                path = f"library/{package.replace('.', '/')}/{entry.name}"
                found.append((path, entry.read_bytes()))
    start = files("gpuadvisor.collectors.script.child") / "sitecustomize.py"
    found.append(("sitecustomize.py", start.read_bytes()))
    return found


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
