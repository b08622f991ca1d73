"""Write what a study found as an HTML page, Markdown or JSON."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.domain.knobs import Snippet
    from gpuadvisor.domain.study import StudyResult
    from gpuadvisor.storage.database import Store

EPILOG = """examples:
  gpuadvisor report                      the newest study, as an HTML page in this folder
  gpuadvisor report train-3 --markdown   for a pull request, on the standard output
  gpuadvisor report --json | jq .speedup
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "study", nargs="?", metavar="STUDY", help="name of the study; the newest one by default"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the page here; STUDY.html by default"
    )
    parser.add_argument(
        "--markdown",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write Markdown to a file, or to the standard output with `-` or without FILE",
    )
    parser.add_argument("--json", action="store_true", help="print the study as JSON")


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.storage.database import open_store

    with open_store() as store:
        result = _load(store, args.study)
    # The standard output belongs to JSON and Markdown, where they go there.
    said_on = sys.stderr if args.json or args.markdown == "-" else sys.stdout
    if args.json:
        from gpuadvisor.reports.json_report import study_json_text

        print(study_json_text(result))
    if args.markdown is not None:
        _write_markdown(result, args.markdown, said_on)
    if args.html or not (args.json or args.markdown):
        _write_page(result, args.html or Path(_file_name(result.study)), said_on)
    return 0


def _load(store: Store, name: str | None) -> StudyResult:
    """Return the study of that name, or the newest one that has a result."""
    chosen = name if name is not None else store.latest_study(finished=True)
    known = store.study_names()
    if not known:
        raise UsageError("no study yet: run `gpuadvisor tune script.py` first")
    if chosen is None:
        raise UsageError(
            f"no study has a result yet ({_listed(known)}): wait for one,"
            " or continue it with `gpuadvisor tune --resume`"
        )
    if chosen not in known:
        raise UsageError(f"no study is called {chosen!r}; there are: {_listed(known)}")
    return store.load_study(chosen)


def _listed(names: list[str], most: int = 10) -> str:
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _write_markdown(result: StudyResult, target: str, said_on: TextIO) -> None:
    from gpuadvisor.reports.markdown import study_markdown

    text = study_markdown(result, _snippets(result))
    if target == "-":
        sys.stdout.write(text)
    else:
        _write(Path(target), text, said_on)


def _write_page(result: StudyResult, path: Path, said_on: TextIO) -> None:
    from gpuadvisor.reports.html import study_html

    _write(path, study_html(result, _snippets(result)), said_on)


def _snippets(result: StudyResult) -> tuple[Snippet, ...]:
    from gpuadvisor.tuners.knobs import load_knobs
    from gpuadvisor.tuning.snippets import permanent_snippets

    return permanent_snippets(result.settings, load_knobs())


def _file_name(study: str) -> str:
    """Return a file name for the study: a name that the user chose may hold slashes."""
    return (re.sub(r"[^\w.+-]+", "-", study).strip(".-") or "study") + ".html"


def _write(path: Path, text: str, said_on: TextIO) -> None:
    try:
        path.write_bytes(text.encode("utf-8", "replace"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot write {path}: {reason}; choose another file") from None
    print(f"wrote {path.absolute()}", file=said_on)
