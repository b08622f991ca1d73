"""Write what a study or a kernel's tuning found, or a profile shows, as HTML, Markdown or JSON.

Exit status: 0; 1 where nothing is named and nothing stored yet; 2 for a name that is not stored; 5
when the store cannot be used.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuadvisor.commands._arguments import add_json, add_markdown, add_whole
from gpuadvisor.errors import MissingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuadvisor.domain.kernel_records import KernelResult
    from gpuadvisor.domain.study import StudyResult
    from gpuadvisor.profiling.resolving import ResolvedProfile
    from gpuadvisor.storage.database import Store

EPILOG = """examples:
  gpuadvisor report                      the newest study, as an HTML page in this folder
  gpuadvisor report train-3 --markdown   for a pull request, on the standard output
  gpuadvisor report --json | jq .speedup
  gpuadvisor report train.pt.trace.json.gz   a profile: where its time goes
  gpuadvisor report train --kind profile --json | jq .time
  gpuadvisor report transpose                a kernel that was tuned, for all its sizes and GPUs
"""

MOST_LISTED = 10
"""Studies that are named; of more, their number is said."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME",
        help="a study, a stored profile, a trace file, or a tuned kernel or its file; the newest"
        " study by default, or the newest profile where there is no study",
    )  # fmt: skip
    parser.add_argument(
        "--kind",
        choices=("study", "profile", "kernel"),
        help="which is meant where several have the name",
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the page here; NAME.html by default"
    )
    add_whole(parser)
    add_markdown(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.storage.database import open_store

    if (kernel := _kernel(args.name, args.kind)) is not None:
        _report_kernel(args, kernel)
        return 0
    with open_store() as store:
        found = _found(store, args.name, args.kind)
        result = store.load_study(found) if isinstance(found, str) else None
    if result is not None:
        if args.whole:
            raise UsageError(
                f"--whole is for profiles, and {result.study} is a study: leave it out"
            )
        _report_study(args, result)
    elif not isinstance(found, str):
        _report_profile(args, found)
    return 0


def _kernel(name: str | None, kind: str | None) -> list[KernelResult] | None:
    """Return the results of a kernel; None where none is meant."""
    if kind != "kernel" and (kind is not None or name is None):
        return None
    from gpuadvisor.storage.kernel_studies import studies

    known = studies()
    found = known.of(name) if name is not None else known.of_newest()
    if found and kind is None and name is not None and (other := _other_of(name)):
        raise UsageError(
            f"{name!r} is a kernel and a {other}: add `--kind kernel` or `--kind {other}`"
        )
    if found or kind is None:
        return found or None
    if name is None or not known.results:
        kind_of_error = MissingError if name is None else UsageError
        raise kind_of_error("no kernel was tuned yet: `gpuadvisor tune-kernel FILE` tunes some")
    names = ", ".join(dict.fromkeys(each.kernel for each in known.results))
    raise UsageError(f"there is no tuned kernel {name}; there are: {names}")


def _other_of(name: str) -> str:
    """Say what else has the name of a kernel: `study` or `profile`; empty for nothing."""
    from gpuadvisor.profiling import resolving
    from gpuadvisor.storage.database import open_store

    with open_store() as store:
        studies = store.study_names()
    try:
        found = resolving.resolve(name, studies)
    except UsageError:
        return ""
    return "study" if isinstance(found, str) else "profile"


def _found(store: Store, name: str | None, kind: str | None) -> str | ResolvedProfile:
    """Return the name of the study that has a result, or the profile."""
    from gpuadvisor.profiling import resolving

    known = store.study_names()
    if name is not None:
        return resolving.resolve(name, known, None if kind is None else resolving.Kind(kind))
    newest = None if kind == "profile" else store.latest_finished()
    if newest is not None:
        return newest
    if kind != "study" and (profile := resolving.newest_profile()) is not None:
        return profile
    if kind == "profile":
        raise MissingError("no profile is stored yet: `gpuadvisor import FILE` adds one")
    if not known:
        raise MissingError("no study yet: run `gpuadvisor tune script.py` first")
    raise MissingError(
        f"no study has a result yet ({_listed(known)}): wait for one,"
        " or continue it with `gpuadvisor tune --resume`"
    )


def _listed(names: list[str]) -> str:
    more = f", and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def _report_study(args: argparse.Namespace, result: StudyResult) -> None:
    from gpuadvisor.printable import file_name
    from gpuadvisor.reports.json_studies import study_json
    from gpuadvisor.reports.study.document import study_html, study_markdown
    from gpuadvisor.tuners.knobs import load_knobs
    from gpuadvisor.tuning.arguments import permanent_snippets

    snippets = permanent_snippets(result.settings, load_knobs())
    _write(
        args,
        file_name(result.study, "study"),
        lambda: study_json(result),
        lambda: study_markdown(result, snippets),
        lambda: study_html(result, snippets),
    )


def _report_profile(args: argparse.Namespace, resolved: ResolvedProfile) -> None:
    from gpuadvisor.printable import file_name
    from gpuadvisor.profiling.diagnosing import profile_report
    from gpuadvisor.reports.json_documents import profile_json
    from gpuadvisor.reports.profile.document import profile_html, profile_markdown

    report = profile_report(resolved, whole=args.whole)
    _write(
        args,
        file_name(resolved.name, "profile"),
        lambda: profile_json(report),
        lambda: profile_markdown(report),
        lambda: profile_html(report),
    )


def _report_kernel(args: argparse.Namespace, results: list[KernelResult]) -> None:
    from gpuadvisor.printable import file_name
    from gpuadvisor.profiling.kernels import outcomes
    from gpuadvisor.reports.kernel.outcome import document
    from gpuadvisor.reports.kernel.page import kernel_html, kernel_markdown

    names = list(dict.fromkeys(each.kernel for each in results))
    if len(names) > 1:
        raise UsageError(f"the file has several kernels: name one of {', '.join(names)}")
    found = outcomes(results)
    _write(
        args,
        file_name(names[0], "kernel"),
        lambda: document(found),
        lambda: kernel_markdown(found),
        lambda: kernel_html(found),
    )


def _write(
    args: argparse.Namespace,
    name: str,
    json: Callable[[], dict[str, Any]],
    markdown: Callable[[], str],
    html: Callable[[], str],
) -> None:
    """Write what was asked for; the page in a file of this name where nothing was."""
    from gpuadvisor.commands._output import write, write_formats

    if not write_formats(args, json, markdown, html):
        write(Path(name), html(), sys.stdout, "--html")
