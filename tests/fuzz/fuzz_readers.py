"""Coverage-guided fuzzing of the readers of profiles, with Atheris (libFuzzer for Python).

    python -m venv /tmp/fuzz
    /tmp/fuzz/bin/pip install --group fuzz -e .
    /tmp/fuzz/bin/python tests/fuzz/fuzz_readers.py kineto --seconds 300 [--corpus FOLDER]
    /tmp/fuzz/bin/python tests/fuzz/fuzz_readers.py kineto --replay FILE

Whatever a file holds, its reader returns a header, and rows that agree with it, or raises one of
gpuadvisor's errors with one sentence; a file of 64 KiB takes it no 10 s and no 300 MiB. Inputs
that reach new code are kept in the corpus's folder, and are where the next run begins; the input
with which something did not hold is kept beside it, or without one in the current folder, for
`--replay`. The exit status is 0 if all held. Linux only.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import atheris
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["gpuadvisor"]):
    from fuzz_inputs import TARGETS, Target

    from gpuadvisor.columns import MemoryProfile
    from gpuadvisor.domain.profile import MAX_WARNINGS, TABLES, UNKNOWN, Header
    from gpuadvisor.errors import AdvisorError

MOST_SECONDS = 10
"""For one input; the slowest of the seeds takes 0.05 s."""
MOST_MIB = 300
"""For one input: 64 KiB of gzip may hold 64 MiB."""
MOST_MIB_OF_ALL = 8192
"""Of the process: Atheris 3.0 never frees what comparing arrays returns, some 30 KiB a trace."""
MEMORY_FOLDER = Path("/dev/shm")
"""Files are written there where it exists: ten thousand a second are none for a disk."""
STATUS, RESET_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")
TEXTS = {"name", "shapes", "types", "stack", "type", "group", "metric", "unit"}
"""Columns that are numbers of texts."""


def main() -> None:
    """Fuzz a reader, or try it once on a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("reader", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--corpus", type=Path, help="keep inputs here; else in a temporary folder")
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.here:
        fuzz(chosen)
        return
    # libFuzzer ends its process without going back to Python, which could not clean up.
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
        command = [sys.executable, __file__, *sys.argv[1:], "--here", folder]
        sys.exit(subprocess.run(command, check=False).returncode)


def fuzz(chosen: argparse.Namespace) -> None:
    """Do what was chosen in a folder that is removed afterwards."""
    target, folder = TARGETS[chosen.reader], chosen.here
    path = folder / "file"
    if chosen.replay:
        print(tried(target, chosen.replay.read_bytes(), path))
        return
    corpus = chosen.corpus or folder / "corpus"
    corpus.mkdir(exist_ok=True, parents=True)
    for number, seed in enumerate(target.seeds(folder)):
        (corpus / f"seed-{number}").write_bytes(seed)
    artifacts = (chosen.corpus or Path(chosen.reader)).absolute()
    words = folder / "words"
    words.write_text("".join(f"{json.dumps(word)}\n" for word in target.words))
    arguments = _arguments(target, chosen.seconds, corpus, artifacts, words)
    atheris.Setup([sys.argv[0], *arguments], lambda data: tried(target, data, path))
    atheris.Fuzz()


def _fast_folder() -> Path | None:
    return MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None


def _arguments(
    target: Target, seconds: int, corpus: Path, artifacts: Path, words: Path
) -> list[str]:
    return [
        f"-max_total_time={seconds}",
        f"-timeout={MOST_SECONDS}",
        f"-rss_limit_mb={MOST_MIB_OF_ALL}",
        f"-max_len={target.most_bytes}",
        *([f"-dict={words}"] if target.words else []),
        f"-artifact_prefix={artifacts}-",
        "-print_final_stats=1",
        str(corpus),
    ]


def tried(target: Target, data: bytes, path: Path) -> str:
    """Read a file of these bytes; AssertionError, or what the reader raised, if anything is off."""
    target.write(data, path, atheris.FuzzedDataProvider)
    RESET_PEAK.write_text("5")
    before = _mib("VmRSS")
    told = _read(target, path)
    assert _mib("VmHWM") - before < MOST_MIB, "it takes too much memory"
    return told


def _mib(what: str) -> int:
    """Return how much memory this process takes, or took at most."""
    return int(re.findall(rf"{what}:\s+(\d+) kB", STATUS.read_text())[0]) >> 10


def _read(target: Target, path: Path) -> str:
    profile = MemoryProfile()
    try:
        profile.finish(target.read(path, profile))
    except AdvisorError as error:
        _check_sentence(str(error))
        return str(error)
    _check_header(profile.header)
    for table in TABLES:
        _check_rows(profile, table)
    return repr(profile.header)


def _check_sentence(text: str) -> None:
    assert text and "\n" not in text and len(text) < 2000, f"no sentence: {text!r}"
    text.encode()


def _check_header(header: Header) -> None:
    """It can be stored: as JSON, in SQLite's whole numbers."""
    assert len(header.warnings) <= MAX_WARNINGS
    for warning in header.warnings:
        _check_sentence(warning)
    assert header.texts[0] == ""
    for text in header.texts:
        text.encode()
    plain = {**asdict(header), "texts": ()}
    json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
    _check_numbers(plain)


def _check_numbers(value: Any) -> None:
    if isinstance(value, dict):
        for key, part in value.items():
            _check_numbers(key)
            _check_numbers(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _check_numbers(part)
    elif isinstance(value, int):
        assert abs(value) < 2**63, value
    elif isinstance(value, float):
        assert math.isfinite(value), value


def _check_rows(profile: MemoryProfile, table: str) -> None:
    """Times lie within the profile, texts are there, and no value is infinite."""
    columns, header = profile.columns(table), profile.header
    for name, values in columns.items():
        if name in TEXTS:
            assert ((values >= 0) & (values < len(header.texts))).all(), f"{table}.{name}"
        if values.dtype.kind == "f":
            assert not np.isinf(values).any(), f"{table}.{name}"
    for name in {"begin_ns", "time_ns"} & columns.keys():
        begin = columns[name]
        if header.source == "ncu":
            assert (begin == UNKNOWN).all(), f"{table}.{name}"
            continue
        end = begin + columns.get("duration_ns", 0)
        assert (begin >= 0).all() and (end >= begin).all(), f"{table}.{name}"
        assert (end <= header.duration_ns).all(), f"{table}.{name}"


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
