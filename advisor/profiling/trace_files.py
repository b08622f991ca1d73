"""The files that an import is about: named ones, and those of folders, a trace for each rank."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.readers import head_of, reader_of

MOST_FILES = 4096
"""Of a folder, which are all opened to see what they are. Runs have a trace for each GPU."""
_RANK = re.compile(r"rank[-_ .]?(\d{1,6})(?!\d)", re.IGNORECASE)
_ENDINGS = re.compile(
    r"(\.(gz|zst|json|trace|pt|sqlite|csv|raw|nsys-rep|ncu-rep|chrome_trace))+$", re.IGNORECASE
)


_MARKS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"ph"', b'"baseTimeNano')
"""In the begin of most traces, by which they are told from other JSON files beside them."""
LARGE_BYTES = 1 << 20
"""From which on a JSON file is taken for a trace without a mark: some have pages of metadata
first, and an import that fails says so, where one that is left out would not be missed."""


@dataclass(frozen=True)
class TraceFile:
    """One file to import."""

    path: Path
    """Absolute."""
    stem: str
    """What names its profile where the user does not."""
    ranks_of: str = ""
    """Absolute path of the folder whose traces are the ranks of one run; empty for a lone one."""
    is_temporary: bool = False
    """Whether the file is about to be removed, so that the profile comes from no file."""


def trace_files(named: Iterable[Path]) -> list[TraceFile]:
    """Return the files in the order of their naming, those of a folder by name.

    UsageError where a folder has no trace, or too many files to look at.
    """
    found = []
    for path in named:
        # Links are followed by name only: `run/latest.json` is called `latest`.
        absolute = path.absolute()
        found += _of_folder(absolute) if absolute.is_dir() else [TraceFile(absolute, stem(path))]
    return list({each.path: each for each in found}.values())


def stem(path: Path) -> str:
    """Return a file's name without what says its format: `train` of `train.pt.trace.json.gz`."""
    return _ENDINGS.sub("", path.name) or path.name


def rank_in_name(path: Path) -> int | None:
    """Return 3 of `trace_rank-3.json` and of `rank3/trace.json`; None where no name tells it."""
    for name in (path.name, path.parent.name):
        if match := _RANK.search(name):
            return int(match[1])
    return None


def _of_folder(folder: Path) -> list[TraceFile]:
    files = sorted(each for each in _below(folder) if _is_trace(each))
    if not files:
        raise UsageError(f"{folder} has no trace that gpuadvisor knows: name the files themselves.")
    ranks_of = str(folder) if len(files) > 1 else ""
    return [TraceFile(each, f"{folder.name}-{stem(each)}", ranks_of) for each in files]


def _is_trace(path: Path) -> bool:
    try:
        head, packed = head_of(path)
        if head.lstrip()[:1] not in (b"{", b"["):
            return reader_of(path) is not None
        marked = any(mark in head for mark in _MARKS)
        return marked or bool(packed) or path.stat().st_size >= LARGE_BYTES
    except (OSError, UsageError):
        return False


def _below(folder: Path) -> list[Path]:
    """Return the readable files in a folder and in the folders in it, without hidden ones."""
    found = []
    for pattern in ("*", "*/*"):
        for path in folder.glob(pattern):
            hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
            if hidden or not path.is_file():
                continue
            found.append(path)
            if len(found) > MOST_FILES:
                raise UsageError(
                    f"{folder} has more than {MOST_FILES} files: name the traces themselves."
                )
    return found
