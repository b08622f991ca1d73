"""Trace files: which ones a name stands for, which reader each needs, and reading one into memory.

A file's content tells its reader; only a `.nsys-rep` has no mark to go by.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gpuadvisor.collectors.telemetry.recording import KIND
from gpuadvisor.collectors.worktrees import POINTER
from gpuadvisor.domain.profile import Header, Profile, Sink
from gpuadvisor.domain.unprofiled import UnprofiledSteps, with_unprofiled_steps
from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.printed import printed

if TYPE_CHECKING:
    from gpuadvisor.columns import MemoryProfile

HEAD_BYTES = 4096
"""Bytes at the begin of a file, decompressed, by which readers recognise it."""
GZIP, ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
COMPRESSED_BYTES = 1 << 16
"""Bytes that are read for the head: Deflate shrinks nothing below a thousandth (RFC 1951)."""
MOST_FILES = 4096
"""Files of a folder that are opened to see what they are; runs have a trace for each GPU."""
_RANK = re.compile(r"rank[-_ .]?(\d{1,6})(?!\d)", re.IGNORECASE)
_ENDINGS = re.compile(
    r"(\.(gz|zst|json|trace|pt|sqlite|csv|raw|nsys-rep|ncu-rep|chrome_trace))+$", re.IGNORECASE
)
_MARKS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"ph"', b'"baseTimeNano')
"""Texts at the begin of most traces, which tell them from other JSON files beside them."""
LARGE_BYTES = 1 << 20
"""Size from which on a JSON file is taken for a trace without a mark: some have pages of metadata
first, and an import that fails says so, where one that is left out would not be missed."""


class Reader(Protocol):
    """A module that reads profiles of one format."""

    def read(self, path: Path, sink: Sink) -> Header:
        """Read a file into a sink; an AdvisorError says in a sentence why it cannot be used."""
        ...


def reader_of(path: Path) -> Reader | None:
    """Return the reader for this file, None if it is for none; OSError where it cannot be read.

    UsageError where only traces of the torch profiler may be compressed, and it is another one.
    """
    from gpuadvisor.collectors.kineto import reader as kineto
    from gpuadvisor.collectors.nsight import compute_csv, compute_report, systems, systems_report

    head, packed = head_of(path)
    if kineto.recognises(head):
        return kineto
    for reader in (systems, compute_csv, compute_report):
        if reader.recognises(head):
            if packed:
                raise UsageError(f"{path} is compressed: unpack it first, with `{packed}`.")
            return reader
    return systems_report if systems_report.recognises(path.name) else None


def known_reader(path: Path) -> Reader:
    """Return the reader for this file; UsageError where there is none."""
    if not path.is_file():
        raise UsageError(f"{path} is no file: name a trace, or a folder of traces.")
    if is_recording(path):
        raise UsageError(
            f"{path} is a recording of telemetry and no profile: `gpuadvisor diagnose` says what is"
            " wrong in it, and `gpuadvisor watch --replay` shows it."
        )
    with readable(path):
        head, _ = head_of(path)
    if head.startswith(POINTER):
        raise UsageError(
            f"{path} is only the pointer of Git LFS, not the content: `git lfs install` and `git"
            " lfs pull` get it."
        )
    reader = reader_of(path)
    if reader is None:
        if what := printed(head):
            raise UsageError(f"{path} is {what}.")
        raise UsageError(
            f"{path} is no profile that gpuadvisor knows: it reads traces of the torch profiler "
            "(.json, .gz, .zst), Nsight Systems (.sqlite, .nsys-rep) and Nsight Compute (.csv, "
            ".ncu-rep)."
        )
    return reader


def is_recording(path: Path) -> bool:
    """Say whether a file is a recording of telemetry; UsageError where it cannot be read."""
    if not path.is_file():
        return False
    with readable(path):
        return path.suffix == ".gpr" or f'"kind": "{KIND}"'.encode() in head_of(path)[0]


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """UsageError where the block cannot read the file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{path} cannot be read ({reason}): check its permissions.") from error


def head_of(path: Path) -> tuple[bytes, str]:
    """Return the begin of a file, unpacked, and the program that unpacks it; OSError else."""
    with path.open("rb") as file:
        start = file.read(COMPRESSED_BYTES)
        if start.startswith(GZIP):
            with suppress(zlib.error):
                unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
                return unpacker.decompress(start, HEAD_BYTES), "gunzip"
            return b"", "gunzip"
        if start.startswith(ZSTANDARD):
            import zstandard

            file.seek(0)
            with (
                suppress(zstandard.ZstdError),
                zstandard.ZstdDecompressor().stream_reader(file, closefd=False) as stream,
            ):
                return stream.read(HEAD_BYTES), "unzstd"
            return b"", "unzstd"
        return start[:HEAD_BYTES], ""


@dataclass(frozen=True)
class TraceFile:
    """One file to import."""

    path: Path
    """Absolute."""
    stem: str
    """The name of its profile where the user gives none."""
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


def open_profile(path_or_name: str | os.PathLike[str]) -> Profile:
    """Return the profile in a trace file, or the stored one of that name.

    A path of a file is read into memory as a whole and not stored. Anything else is looked up in
    the store: a name, a number, the begin of a file's SHA-256, or the name of a file that was
    imported; its columns are read when they are asked for. UsageError where there is no such
    profile, or the file is none.

        profile = gpuadvisor.open_profile("train.pt.trace.json.gz")
        names = profile.header.texts
        kernels = profile.columns("kernels", ["name", "duration_ns"])
    """
    path = Path(path_or_name)
    if path.is_file():
        return read_profile(path)
    if isinstance(path_or_name, os.PathLike):
        raise UsageError(f"There is no file {path}: give a trace's path, or a profile's name.")
    from gpuadvisor.storage.profiles.library import open_profiles

    return open_profiles().find(path_or_name)


def read_profile(path: Path, unprofiled: UnprofiledSteps | None = None) -> MemoryProfile:
    """Return the profile in a trace file; an AdvisorError says in a sentence why it cannot be.

    With `unprofiled` it tells what steps took without the profiler, unless the file does.
    """
    from gpuadvisor.rules.facts.excerpt import MOST_EVENTS
    from gpuadvisor.storage.profiles.packed import PackedProfile

    profile = PackedProfile(MOST_EVENTS)
    with readable(path):
        header = known_reader(path).read(path, profile)
        profile.finish(with_unprofiled_steps(header, unprofiled) if unprofiled else header)
    return profile
