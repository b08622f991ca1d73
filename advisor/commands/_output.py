"""The outputs of commands: the terminal or the pipe, and files that hold a report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from gpuadvisor.errors import UsageError
from gpuadvisor.whole_files import draft_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rich.console import Console


def output() -> Console:
    """Return the console of the standard output; BrokenPipeError where its reader is gone."""
    return _console(stderr=False)


def messages() -> Console:
    """Return the console of the standard error, for progress.

    BrokenPipeError where its reader is gone.
    """
    return _console(stderr=True)


def _console(stderr: bool) -> Console:
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            # Rich's own ends the program with the exit status 1, which is that of a failure.
            raise BrokenPipeError

    return Ours(stderr=stderr, highlight=False)


def note(sentence: str) -> None:
    """Say on the standard error what the user should know."""
    print(f"gpuadvisor: {sentence}", file=sys.stderr)


def messages_stream(*, json: bool, markdown: str | None = None) -> TextIO:
    """Return the stream that says which files were written.

    The standard output belongs to JSON and Markdown, where they go there.
    """
    return sys.stderr if json or markdown == "-" else sys.stdout


def write(path: Path, text: str, said_on: TextIO, option: str = "") -> None:
    """Write a file and say where it is; UsageError where it cannot be written, with the `option`
    that chooses another one.
    """
    try:
        with draft_of(path) as draft:
            draft.write_bytes(text.encode("utf-8", "replace"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        other = "choose another file" + (f" with {option}" if option else "")
        raise UsageError(f"cannot write {path}: {reason}; {other}") from None
    print(f"wrote {path.absolute()}", file=said_on)


def make_folder(path: Path) -> None:
    """Make the folder of a file that will be written; UsageError where it cannot be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another file") from None


def write_or_print(target: str, text: str, said_on: TextIO) -> None:
    """Write a file, or print the text where the target is `-`."""
    if target == "-":
        sys.stdout.write(text)
    else:
        write(Path(target), text, said_on)


def write_formats(
    args: argparse.Namespace,
    json: Callable[[], dict[str, Any]],
    markdown: Callable[[], str],
    html: Callable[[], str] | None = None,
) -> bool:
    """Write what `--json`, `--markdown` and `--html` ask for, and say whether any of them did.

    Without `html` the command has no such option. UsageError where a file cannot be written.
    """
    from gpuadvisor.reports import strict_json

    said_on = messages_stream(json=args.json, markdown=args.markdown)
    if args.json:
        print(strict_json.text(json()), flush=True)
    if args.markdown is not None:
        write_or_print(args.markdown, markdown(), said_on)
    if html is None or args.html is None:
        return bool(args.json) or args.markdown is not None
    write(args.html, html(), said_on)
    return True
