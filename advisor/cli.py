"""The command line: one module per subcommand, imported without their heavy dependencies."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Never

from gpuadvisor.commands import load_commands
from gpuadvisor.errors import AdvisorError, ScriptError, UsageError
from gpuadvisor.printable import printable

DESCRIPTION = "Find out why a GPU job is slow, prove what makes it faster, and keep it fast."
ALIKE = 0.8
"""Least similarity (difflib) of an option to the one of which it is a slip.

`--epochs` is none of `--steps`.
"""
SHOWN_LINES = 15
"""Lines of a failed script's output that are shown above the error."""
BROKEN_PIPE = 141
"""128 and SIGPIPE, as for any program whose reader has seen enough."""
FAILURE = 1


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, and where the options are listed."""

    def error(self, message: str) -> Never:
        raise UsageError(f"{message}; `{self.prog} --help` lists what it takes")


def build_parser(first: str | None = None, names_only: bool = False) -> argparse.ArgumentParser:
    """Return the parser; declaring a command must not import what running it needs.

    Where `first` is a command's name, the parser knows that one alone: the daemon carries what it
    has loaded all day. With `names_only` it knows all commands and no option of theirs, as the
    list of commands needs: declaring those takes longer than all else.
    """
    parser = _Parser(prog="gpuadvisor", description=DESCRIPTION)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    subparsers = parser.add_subparsers(metavar="COMMAND", dest="command")
    for name, command in load_commands(first).items():
        summary, _, details = (command.__doc__ or "").partition("\n")
        examples = getattr(command, "EPILOG", None)
        subparser = subparsers.add_parser(
            name,
            help=summary,
            description=f"{summary}\n{details}".strip(),
            epilog=examples,
            formatter_class=(  # examples keep their lines
                argparse.RawDescriptionHelpFormatter if examples else argparse.HelpFormatter
            ),
            allow_abbrev=False,  # a script's own `--seed-all` must not be taken for our `--seed`
        )
        subparser.set_defaults(run=command.run)
        if names_only:
            continue
        subparser.add_argument("--debug", action="store_true", help="show tracebacks of errors")
        command.add_arguments(subparser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the process's exit status."""
    given = sys.argv[1:] if argv is None else list(argv)
    _open_streams()
    try:
        status = _run_and_report(given)
    except BrokenPipeError:  # the reader, `head` for example, has seen enough
        status = BROKEN_PIPE
    if status in (BROKEN_PIPE, 128 + signal.SIGHUP):  # or the terminal is gone
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):  # what is left in their buffers is flushed at exit
            with suppress(io.UnsupportedOperation):  # a stream that is no file
                os.dup2(nowhere, stream.fileno())
    return status


def _run_and_report(given: list[str]) -> int:
    """Run the command and report every error in a sentence; BrokenPipeError if nobody reads."""
    debug = "--debug" in _split(given)[0]
    try:
        status = _run(given)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except Exception as error:
        ending = _ending(error)
        if isinstance(ending, KeyboardInterrupt):
            _say("interrupted")
            return 130
        if ending is not None:
            raise ending from None
        if debug:
            raise
        if isinstance(error, AdvisorError):
            return _explain(error)
        _say(_unexpected(error))
        return FAILURE
    return status


def _ending(error: BaseException) -> KeyboardInterrupt | SystemExit | None:
    """Return the end of the program, asked for by a signal, that an error stands for: until Python
    3.12 what is raised while a class is made, as in an import, becomes the cause of another."""
    cause = error.__cause__
    while cause is not None and not isinstance(cause, KeyboardInterrupt | SystemExit):
        cause = cause.__cause__
    return cause


def _open_streams() -> None:
    """Have the standard streams lead nowhere that were closed, as by `>&-`."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - for good


def _run(given: list[str]) -> int:
    args = _parsed(given)
    if args is None:
        return 2
    if args.version:
        import gpuadvisor

        print(gpuadvisor.__version__)
        return 0
    status: int = args.run(args)
    return status


def _parsed(given: list[str]) -> argparse.Namespace | None:
    """Return the arguments; None where there is no command, and the help was printed."""
    own, dashes, rest = _split(given)
    no_command = own[:1] in ([], ["-h"], ["--help"], ["--version"])
    parser = build_parser(None if no_command else own[0], names_only=no_command)
    if not no_command and (misspelt := _misspelt_command(parser, own[0])):
        raise misspelt
    own = joined(parser, own)
    args, unknown = parser.parse_known_args(own)
    if args.version:
        return args
    if not hasattr(args, "run"):
        if unknown:
            parser.error(f"there is no option {unknown[0]}")
        parser.print_help()
        return None
    takes_rest = getattr(args, "takes_rest", False)
    if unknown:
        if misspelt := _misspelt(parser, args.command, unknown[0]):
            raise misspelt
        if takes_rest:
            raise (
                _revision(parser, own, unknown[0])
                or _two_values(parser, own, unknown[0])
                or _misplaced(own, unknown, rest)
            )
        _commands(parser)[args.command].error(f"{args.command} takes no {unknown[0]}")
    if dashes and not takes_rest:
        raise UsageError(f"{args.command} takes nothing after --")
    if getattr(args, "json", False) and getattr(args, "markdown", None) == "-":
        raise UsageError("--json takes the standard output: give --markdown a file")
    args.rest = rest
    return args


def joined(parser: argparse.ArgumentParser, own: list[str]) -> list[str]:
    """Return the words with those of a command of two joined: `gate record` is one.

    A script that is called `record` is `./record` for the command `gate`.
    """
    both = " ".join(own[:2])
    return [both, *own[2:]] if both in _commands(parser) else own


def _split(argv: list[str]) -> tuple[list[str], bool, list[str]]:
    """Return what is ours, whether there was a `--`, and what follows it."""
    if "--" not in argv:
        return argv, False, []
    place = argv.index("--")
    return argv[:place], True, argv[place + 1 :]


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands by their names; `gate record` is one name."""
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    choices: dict[str, argparse.ArgumentParser] = commands.choices
    return choices


def _misspelt_command(parser: argparse.ArgumentParser, given: str) -> UsageError | None:
    """Return the sentence for a word that is nearly a command; None for others."""
    from difflib import get_close_matches

    names = _commands(parser)
    if given.startswith("-") or any(given in name.split() for name in names):
        return None
    close = get_close_matches(given, names, n=1, cutoff=ALIKE)
    return UsageError(f"there is no command {given}: did you mean {close[0]}?") if close else None


def _misspelt(parser: argparse.ArgumentParser, command: str, unknown: str) -> UsageError | None:
    """Return the sentence for an option that is nearly one of the command's; None for others."""
    from difflib import get_close_matches

    options = _commands(parser)[command]._option_string_actions
    given = unknown.partition("=")[0]
    close = get_close_matches(given, options, n=1, cutoff=ALIKE) or [
        each for each in options if len(given) > len("--") and each.startswith(given)
    ]
    return UsageError(f"{command} has no {given}: did you mean {close[0]}?") if close else None


def _revision(parser: argparse.ArgumentParser, own: list[str], unknown: str) -> UsageError | None:
    """Return the sentence for `gate main train.py`, whose first word is meant as --base."""
    import shlex

    command, *words = own
    takes_base = "--base" in _commands(parser)[command]._option_string_actions
    if not takes_base or words[:2][1:] != [unknown] or not unknown.endswith(".py"):
        return None
    first = words[0]
    if first.startswith("-") or first.endswith(".py"):
        return None
    meant = shlex.join(["gpuadvisor", command, "--base", *words])
    return UsageError(f"{command} takes one script: to compare with {first}, `{meant}`")


def _two_values(parser: argparse.ArgumentParser, own: list[str], unknown: str) -> UsageError | None:
    """Return the sentence for `gate --link data extra train.py`, whose `extra` is a second link."""
    import shlex

    command, *words = own
    options = _commands(parser)[command]._option_string_actions
    for place, (option, _, second, third) in enumerate(
        zip(words, words[1:], words[2:], words[3:], strict=False)
    ):
        repeats = option in options and isinstance(options[option], argparse._AppendAction)
        if not repeats or second.startswith("-") or second.endswith(".py") or third != unknown:
            continue
        if unknown.endswith(".py"):
            ours = [*words[: place + 2], option, *words[place + 2 :]]
            meant = shlex.join(["gpuadvisor", *command.split(), *ours])
            return UsageError(f"{option} takes one value and may be repeated: `{meant}`")
    return None


def _misplaced(own: list[str], unknown: list[str], rest: list[str]) -> UsageError:
    """Return the sentence for arguments that are probably meant for the script."""
    import shlex

    ours = list(own)
    for word in unknown:
        ours.remove(word)
    command = shlex.join(["gpuadvisor", *ours[0].split(), *ours[1:], "--", *unknown, *rest])
    return UsageError(
        f"{own[0]} has no {unknown[0]}: put the script's own arguments after --, as in `{command}`"
    )


def _explain(error: AdvisorError) -> int:
    if isinstance(error, ScriptError) and error.output.strip():
        lines = error.output.strip().splitlines()[-SHOWN_LINES:]
        print("\n".join(f"  | {printable(line.expandtabs())}" for line in lines), file=sys.stderr)
    _say(str(error))
    return error.exit_code


def _unexpected(error: Exception) -> str:
    """Return one sentence for what nobody expected."""
    text = " ".join(str(error).split())
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return (
            f"{where}{error.strerror}: if that is nothing you can mend, it is a bug in gpuadvisor; "
            "run it again with --debug and report what it shows"
        )
    return f"this is a bug in gpuadvisor ({what}): run it again with --debug and report the output"


def _say(sentence: str) -> None:
    print(f"gpuadvisor: {printable(sentence.expandtabs())}", file=sys.stderr)
