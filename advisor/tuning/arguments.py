"""Settings applied to a script: its own arguments as knobs, and what each setting means for it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import (
    ARGUMENT_PREFIX,
    Application,
    Effect,
    Level,
    ScriptFacts,
    Settings,
    Snippet,
    Value,
)
from gpuadvisor.domain.target import Target
from gpuadvisor.errors import UsageError
from gpuadvisor.tuners.base import Knob


class ArgumentKnob(Knob):
    """One option of the script's command line, which may set what no knob can reach.

    Every level may turn it: the user asked for it.
    """

    level = Level.CONSERVATIVE
    effect = Effect.TRAINING
    order = 200

    def __init__(self, argument: str, values: Sequence[str], args: Sequence[str]) -> None:
        self.name = ARGUMENT_PREFIX + argument  # type: ignore[misc]  # one instance an argument
        self.title = f"the script's {flag_of(argument)}"  # type: ignore[misc]
        self._flag = flag_of(argument)
        current = value_of(args, self._flag)
        self._values = tuple(value for value in dict.fromkeys(values) if value != current)
        self.patience = len(values)  # in whatever order they come, the user wants them all tried

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        return self._values

    def problem(self, value: object) -> str | None:
        return None  # only the script knows

    def apply(self, value: Value, target: Target) -> None:
        """Do nothing: the script got the argument when it was started."""

    def snippet(self, value: Value) -> str:
        return f"{self._flag} {value}"


def parse_arguments(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the values by argument; one that comes twice has the values of both."""
    found: dict[str, tuple[str, ...]] = {}
    for name, values in map(parse_argument, texts):
        found[name] = (*found.get(name, ()), *values)
    return found


def parse_argument(text: str) -> tuple[str, tuple[str, ...]]:
    """Read `batch-size=16,32,64`; UsageError if it is not of that form."""
    name, equals, values = text.partition("=")
    choices = tuple(value.strip() for value in values.split(",") if value.strip())
    if not equals or not re.fullmatch(r"-*[^-\s]\S*", name.strip()) or not choices:
        raise UsageError(
            f"--arg {text!r}: write it as NAME=VALUE,VALUE such as batch-size=16,32,64"
        )
    return name.strip(), choices


def flag_of(argument: str) -> str:
    """Return the option as on the command line: `batch-size` is `--batch-size`."""
    return argument if argument.startswith("-") else f"--{argument}"


def value_of(args: Sequence[str], flag: str) -> str | None:
    """Return the value that the command line gives an option, or None."""
    place = _place(args, flag)
    if place is None:
        return None
    _, equals, value = args[place].partition("=")
    if equals:
        return value
    return args[place + 1] if place + 1 < len(args) else None


def in_more_digits(settings: Settings, knobs: Mapping[str, Knob]) -> Settings:
    """Return the values with which the unchanged script computes in more digits what these settings
    round otherwise; empty where no knob of them has such a value."""
    known = ((n, knobs[n].precise(value)) for n, value in settings.items() if n in knobs)
    return {name: value for name, value in known if value is not None}


def applied(
    settings: Settings, knobs: Mapping[str, Knob]
) -> tuple[tuple[Application, ...], dict[str, str]]:
    """Return what the target process has to apply, in order, and its environment variables.

    The knobs' own order is kept: channels_last and autocast come before compiling, and the
    workers before what needs workers.
    """
    names = [name for name in knobs if name in settings and not name.startswith(ARGUMENT_PREFIX)]
    environment: dict[str, str] = {}
    for name in names:
        environment.update(knobs[name].environment(settings[name]))
    return tuple(knobs[name].application(settings[name]) for name in names), environment


def with_arguments(args: Sequence[str], settings: Settings) -> tuple[str, ...]:
    """Return the script's arguments with the `arg:` settings put in, replaced or appended."""
    result = list(args)
    for name, value in settings.items():
        if name.startswith(ARGUMENT_PREFIX):
            _put(result, flag_of(name.removeprefix(ARGUMENT_PREFIX)), str(value))
    return tuple(result)


def permanent_snippets(settings: Settings, knobs: Mapping[str, Knob]) -> tuple[Snippet, ...]:
    """Return the lines that make settings permanent in the user's own code, in their order.

    Knobs that this version does not know are left out: a study may be from another one.
    """
    snippets = []
    for name, value in settings.items():
        if name.startswith(ARGUMENT_PREFIX):
            line = shlex.join([flag_of(name.removeprefix(ARGUMENT_PREFIX)), str(value)])
            snippets.append(Snippet(name, "on the script's command line", line, "shell"))
        elif name in knobs:
            knob = knobs[name]
            in_shell = knob.snippet_language == "shell"
            where = f"{knob.title}, in the shell before the script" if in_shell else knob.title
            snippets.append(Snippet(name, where, knob.snippet(value), knob.snippet_language))
    return tuple(snippets)


def _put(args: list[str], flag: str, value: str) -> None:
    place = _place(args, flag)
    if place is None:
        args += [flag, value]
        return
    name, equals, _ = args[place].partition("=")
    if equals:
        args[place] = f"{name}={value}"
    else:
        args[place + 1 : place + 2] = [value]


def _place(args: Sequence[str], flag: str) -> int | None:
    """Return where an option stands; the last one counts where it comes twice."""
    # `--batch_size` and `--batch-size` mostly mean one option.
    names = [arg.partition("=")[0].replace("_", "-") for arg in args]
    wanted = flag.replace("_", "-")
    places = [n for n, arg in enumerate(args) if arg.startswith("-") and names[n] == wanted]
    return places[-1] if places else None
