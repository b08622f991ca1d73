"""List the kernels that were tuned, or write their best points for the programs that launch them.

Without a name: each kernel, problem and GPU with what was shown, the newest first. With names: what
was found of these, or with -o files of it. FILE.json is what `gpuadvisor.best` reads, FILE.h
defines a CUDA kernel's parameters by compute capability and size, FILE.py holds a `triton.Config`
for each size, and FILE.csv all points that were evaluated.
Exit status: 0; 2 for a kernel that is not stored; 5 when the store cannot be used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import add_json
from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.domain.kernel_records import KernelResult
    from gpuadvisor.reports.kernel.outcome import KernelOutcome
    from gpuadvisor.storage.kernel_studies import KernelStudies

EPILOG = """examples:
  gpuadvisor kernels                                   all that was tuned
  gpuadvisor kernels transpose                         what was found of one
  gpuadvisor kernels transpose softmax -o best.json    for gpuadvisor.best("transpose", ...)
  gpuadvisor kernels transpose --gpu H200 -o transpose.h -o transpose.csv
  gpuadvisor kernels --json | jq -r '.kernels[].kernel'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="a kernel, a kernel file, or FILE:NAME where several files have one of that name",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="write FILE.json, .h, .py or .csv; may be repeated",
    )
    parser.add_argument(
        "--gpu", metavar="NAME", help="only what was tuned on GPUs whose name holds this"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    for path in args.output:
        if path.suffix not in _WRITERS:
            endings = ", ".join(_WRITERS)
            raise UsageError(f"{path} ends in none of {endings}: choose one of them")
    from gpuadvisor.commands._output import note
    from gpuadvisor.storage.kernel_studies import studies

    known = studies()
    for problem in known.problems:
        note(problem)
    found = _chosen(args, known)
    if args.output:
        _write(args, found)
    elif args.json:
        _print_json(found)
    elif args.names:
        _print(found)
    else:
        _list(found)
    return 0


def _chosen(args: argparse.Namespace, known: KernelStudies) -> list[KernelResult]:
    from gpuadvisor.commands._output import note

    found = list(known.results)
    if args.names:
        found = [each for name in args.names for each in _of(name, known)]
    if args.gpu is not None:
        there = list(dict.fromkeys(each.device for each in found))
        found = [each for each in found if args.gpu.lower() in each.device.lower()]
        if not found and there:
            raise UsageError(f"--gpu {args.gpu}: these were tuned on {', '.join(there)}")
    if not found:
        if args.output:
            raise UsageError("no kernel was tuned yet: `gpuadvisor tune-kernel FILE` tunes some")
        note("no kernel was tuned yet: `gpuadvisor tune-kernel FILE` tunes those of a file")
    return found


def _of(name: str, known: KernelStudies) -> list[KernelResult]:
    found = known.of(name)
    if not found:
        names = list(dict.fromkeys(each.kernel for each in known.results))
        if not names:
            raise UsageError(
                f"there is no tuned kernel {name}, and none at all: `gpuadvisor tune-kernel FILE` "
                "tunes those of a file"
            )
        near = get_close_matches(name, names, 3) or names[:6]
        raise UsageError(f"there is no tuned kernel {name}; there are: {', '.join(near)}")
    return found


# -- on the standard output ------------------------------------------------------------------------


def _outcomes(found: Sequence[KernelResult]) -> list[KernelOutcome]:
    from gpuadvisor.profiling.kernels import outcomes

    return outcomes(found)


def _print_json(found: Sequence[KernelResult]) -> None:
    from gpuadvisor.reports import strict_json
    from gpuadvisor.reports.kernel import outcome as kernel_outcome

    print(strict_json.text(kernel_outcome.document(_outcomes(found))))


def _print(found: Sequence[KernelResult]) -> None:
    from gpuadvisor.reports.kernel import document as kernels_document
    from gpuadvisor.reports.kernel import outcome as kernel_outcome

    for each in _outcomes(found):
        print("\n".join(kernels_document.lines(each.result)))
        print("\n".join(kernel_outcome.lines(each)))


def _list(found: Sequence[KernelResult]) -> None:
    from gpuadvisor.commands._output import output
    from gpuadvisor.reports.kernel.page import print_list

    if found:
        print_list(found, output())


# -- files -----------------------------------------------------------------------------------------


def _write(args: argparse.Namespace, found: Sequence[KernelResult]) -> None:
    from gpuadvisor.commands._output import write

    texts = [(path, _WRITERS[path.suffix](found, path)) for path in args.output]
    for path, text in texts:  # all of them, or none
        write(path, text, sys.stderr)


def _best(found: Sequence[KernelResult], path: Path) -> str:
    from gpuadvisor.storage.kernel_studies import best_text

    return best_text(found)


def _header(found: Sequence[KernelResult], path: Path) -> str:
    from gpuadvisor.reports.kernel.exports import header

    return header(_one(found, path))


def _triton(found: Sequence[KernelResult], path: Path) -> str:
    from gpuadvisor.reports.kernel.exports import triton_configurations

    return triton_configurations(_one(found, path))


def _csv(found: Sequence[KernelResult], path: Path) -> str:
    from gpuadvisor.reports.kernel.exports import space_csv
    from gpuadvisor.storage.kernel_studies import with_evaluations

    return space_csv([with_evaluations(each) for each in found])


def _one(found: Sequence[KernelResult], path: Path) -> Sequence[KernelResult]:
    """Return the results if they are of one kernel; UsageError otherwise."""
    names = list(dict.fromkeys(each.kernel for each in found))
    if len(names) > 1:
        raise UsageError(f"{path} holds one kernel: name one of {', '.join(names)}")
    return found


_WRITERS: dict[str, Callable[[Sequence[KernelResult], Path], str]] = {
    ".json": _best, ".h": _header, ".cuh": _header, ".py": _triton, ".csv": _csv,
}  # fmt: skip
