"""What tuning each kernel came to, in files beside its evaluations, and the best points of all.

`kernels/FILE/KERNEL-SIZES-GPU.study` of gpuadvisor's folder holds a result, as JSON, the file that
ends in `.json` its evaluations as Kernel Tuner reads them, and `best_points.json` in the folder
itself what programs ask for with `gpuadvisor.best`. A kernel that is tuned again replaces what was
known of it for the same problem and GPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from gpuadvisor.best_points import FORMAT as BEST_FORMAT
from gpuadvisor.best_points import STORE_FILE as BEST_FILE
from gpuadvisor.best_points import expression
from gpuadvisor.domain.kernel_records import KernelResult
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.study import Objective, Verdict
from gpuadvisor.errors import StoreError, UsageError
from gpuadvisor.storage import codec, kernel_caches
from gpuadvisor.storage.home import home, readable_home
from gpuadvisor.storage.locks import locked
from gpuadvisor.whole_files import draft_of

FORMAT = 1
"""Version of the files of results."""
_ENDING = ".study"


@dataclass(frozen=True)
class KernelStudies:
    """The stored results, the newest first, and sentences about files that cannot be read."""

    results: tuple[KernelResult, ...]
    problems: tuple[str, ...] = ()

    def of(self, wanted: str) -> list[KernelResult]:
        """Return those of a kernel's name, a kernel file, or `FILE:NAME`; UsageError where files of
        several folders have a kernel of that name.
        """
        found = [each for each in self.results if _is_meant(each, wanted)]
        files = list(dict.fromkeys(each.file for each in found))
        if len(files) > 1:
            ways = ", ".join(f"{file}:{found[0].kernel}" for file in files)
            raise UsageError(f"{wanted} was tuned in several files: name one of {ways}")
        return found

    def of_newest(self) -> list[KernelResult]:
        """Return all results of the kernel that was tuned last; none where there is none."""
        if not self.results:
            return []
        newest = self.results[0]
        return [e for e in self.results if (e.file, e.kernel) == (newest.file, newest.kernel)]


def keep(result: KernelResult) -> None:
    """Store a result beside its evaluations, and bring the best points up to date.

    One that ended before anything was proven takes the place of none that has a verdict.
    """
    if result.verdict is not Verdict.NOT_TRIED or not _place(result).is_file():
        document = {"format": FORMAT, "result": replace(result, evaluations=())}
        _write(_place(result), codec.dumps(document))
    path = home() / BEST_FILE
    with locked(path.with_suffix(".lock"), wait=True):
        _write(path, best_text(studies().results))


def studies() -> KernelStudies:
    """Return what was tuned so far, without the evaluations."""
    results, problems = [], []
    for path in sorted((readable_home() / "kernels").glob(f"*/*{_ENDING}")):
        try:
            results.append(_read(path))
        except StoreError as error:
            problems.append(str(error))
    results.sort(key=lambda each: each.started, reverse=True)
    return KernelStudies(tuple(results), tuple(problems))


def with_evaluations(result: KernelResult) -> KernelResult:
    """Return a result with every point that was evaluated; UsageError where they cannot be read."""
    return replace(result, evaluations=kernel_caches.read(Path(result.record)).evaluations)


def best_text(results: Iterable[KernelResult]) -> str:
    """Return the file that `gpuadvisor.best` reads, with the default where nothing was faster.

    Results are the newest first. Where kernels of several files have one name, or one was changed,
    those count that have the parameters of the newest.
    """
    kernels: dict[str, dict[str, Any]] = {}
    files: dict[str, str] = {}
    for result in results:
        if result.verdict is Verdict.NOT_TRIED:
            continue
        entry = kernels.get(result.kernel)
        if entry is None:
            files[result.kernel] = result.file
            entry = kernels[result.kernel] = {
                "default": dict(result.default),
                "restrictions": _kept(result.size_restrictions),
                "tuned": [],
            }
        if result.file != files[result.kernel] or result.default.keys() != entry["default"].keys():
            continue
        capability = result.compute_capability
        entry["tuned"].append(
            {
                "device": result.device,
                "compute_capability": None if capability is None else list(capability),
                "problem": dict(result.problem),
                "best": dict(result.best or result.default),
                "shown": _shown(result),
            }
        )
    return json.dumps({"gpuadvisor_best": BEST_FORMAT, "kernels": kernels}, indent=1) + "\n"


def cache_path(file: Path, kernel: str, sizes: Mapping[str, Value], device: str) -> Path:
    """Return where the store keeps the evaluations of a kernel, problem and device."""
    where = sha256(str(file.absolute()).encode()).hexdigest()[:8]
    words = [kernel, *(f"{name}{value}" for name, value in sizes.items()), device]
    name = "-".join("".join(c if c.isalnum() else "_" for c in str(word)) for word in words)
    return home() / "kernels" / f"{file.stem}-{where}" / f"{name[:200]}.json"


def _kept(restrictions: Sequence[str] | None) -> list[str] | None:
    """Return restrictions; None where one is more than `gpuadvisor.best` computes."""
    try:
        for text in restrictions or ():
            expression(text)
    except ValueError:
        return None
    return None if restrictions is None else list(restrictions)


def _shown(result: KernelResult) -> str:
    speedup = result.speedup
    if result.best is not None and speedup is not None:
        of = "less energy than the default"
        if result.objective is not Objective.ENERGY:
            of = "the default's speed"
        return (
            f"{speedup.ratio:.2f}x {of} "
            f"(99 % interval {speedup.ci99_low:.3f} to {speedup.ci99_high:.3f})"
        )
    if result.verdict is Verdict.NO_GAIN:
        return "the default is as good as the best found"
    return "nothing was shown to be faster than the default"


def _is_meant(result: KernelResult, wanted: str) -> bool:
    if wanted == result.kernel:
        return True
    file, colon, kernel = wanted.rpartition(":")
    if not colon:
        file, kernel = wanted, result.kernel
    same = Path(file).expanduser().absolute() == Path(result.file) or file == Path(result.file).name
    return same and kernel == result.kernel


def _place(result: KernelResult) -> Path:
    """Return where a result stands in the store, wherever its evaluations are."""
    at = cache_path(Path(result.file), result.kernel, result.problem, result.device)
    return at.with_suffix(_ENDING)


def _read(path: Path) -> KernelResult:
    try:
        document = json.loads(path.read_text("utf-8"))
        if (version := document["format"]) > FORMAT:
            raise StoreError(
                f"{path} was written by a newer gpuadvisor (format {version}, this one reads "
                f"{FORMAT}): update gpuadvisor, or tune that kernel again"
            )
        result: KernelResult = codec.loads(KernelResult, json.dumps(document["result"]))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path} is damaged ({type(error).__name__}: {error}): tune that kernel again, or "
            "remove the file"
        ) from error
    return result


def _write(path: Path, text: str) -> None:
    """Write beside the final place and rename, so that no reader sees half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft_of(path) as draft:
            draft.write_text(text, "utf-8")
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
