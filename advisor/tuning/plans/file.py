"""Plans as TOML files: what was proven, to be read by people and applied by `gpuadvisor run`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.knobs import ARGUMENT_PREFIX, Contribution, Level, Settings, Value
from gpuadvisor.domain.study import Equivalence, Objective, Plan, Speedup, Verdict
from gpuadvisor.errors import UsageError
from gpuadvisor.printable import MOST_SHOWN, brief, printable
from gpuadvisor.toml_file import read_toml
from gpuadvisor.whole_files import draft_of

FORMAT = 2
"""Version of the file's layout; a reader refuses those that are newer than itself."""
FIRST_LINE = "# A plan of gpuadvisor: settings for a script, and what they were measured to bring."
"""First line of a plan's file, which tells it from other TOML files."""
LONGEST_VALUE = 1 << 14
"""Most characters of a setting: some 16 launches of Triton kernels, of which one with thirty
arguments takes 1,000."""
LONGEST_INTEGER = 4096
"""Most bits of a setting. Python refuses to print an integer of more than 4,300 digits."""
_STATUSES = ("equivalent", "wrong", "not_checked")
_VERDICTS = (Verdict.FASTER, Verdict.FASTER_UNVERIFIED)
"""Verdicts of studies that write plans."""


# Writing. ---------------------------------------------------------------------------------------


def write_plan(plan: Plan, path: Path) -> None:
    """Write a plan, over one that is there; the file is whole or not there at any moment.

    UsageError where it cannot be written.
    """
    text = _header(plan, path) + _tables(_document(plan)) + _contribution_tables(plan)
    # Bytes of a file name that are no text are replaced: better a plan with a `?` than none.
    content = text.encode("utf-8", "replace")
    try:
        with draft_of(path) as draft:
            draft.write_bytes(content)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot write the plan to {path}: {reason}; choose another place for it."
        ) from None


def _tables(document: dict[str, Any]) -> str:
    """Return tables as TOML, with text of several lines as such.

    The library would lose a carriage return before a line's end there.
    """
    import tomli_w

    plain = tomli_w.dumps(document)
    return plain if "\\r" in plain else tomli_w.dumps(document, multiline_strings=True)


def _header(plan: Plan, path: Path) -> str:
    script = ["-m", plan.script] if plan.is_module else [plan.script]
    command = ["gpuadvisor", "run", "--plan", path.name, *script]
    words = shlex.join([*command, "--", *plan.args] if plan.args else command)
    return (
        f"{FIRST_LINE}\n"
        "# It holds no code. To run the script with them, unchanged:\n"
        "#\n"
        f"#   {printable(words)}\n"  # a line break in a name must not end the comment
        "#\n"
        "# Lines under [knobs] may be removed or changed, but the figures were measured with\n"
        f"# all of them as they are.\n{_doubt(plan)}\n"
    )


def _doubt(plan: Plan) -> str:
    """Return a comment on a gain that is not verified; empty for one that is."""
    if plan.verdict is not Verdict.FASTER_UNVERIFIED:
        return ""
    return (
        "#\n"
        "# Not verified: the gain was measured, but not enough of the script's life was rehearsed\n"
        "# to say that its results are the same. Check them yourself.\n"
    )


def _document(plan: Plan) -> dict[str, Any]:
    document: dict[str, Any] = {
        "plan": {
            "format": FORMAT,
            "script": plan.script,
            **({"module": True} if plan.is_module else {}),
            "args": list(plan.args),
            "level": str(plan.level),
            "objective": str(plan.objective),
            "created": plan.created,
            **({"study": plan.study} if plan.study else {}),
            **({"verdict": str(plan.verdict)} if plan.verdict else {}),
        },
        "knobs": dict(plan.settings),
    }
    if plan.speedup is not None:
        document["speedup"] = vars(plan.speedup)
    if plan.equivalence is not None:
        document["equivalence"] = _present(vars(plan.equivalence))
    if plan.environment:
        document["environment"] = _present(plan.environment)
    return document


def _contribution_tables(plan: Plan) -> str:
    """Return a table for each contribution; the library would write short ones on one line."""
    return "".join(
        "\n[[contributions]]\n" + _tables(_present(vars(each)))
        for each in plan.contributions
        if not _is_not_finite(each.ratio)
    )


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a plan can express: TOML has no null, so an absent key is None."""
    return {
        key: value
        for key, value in values.items()
        if value is not None and not _is_not_finite(value)
    }


def _is_not_finite(value: Any) -> bool:
    """Say whether a value is NaN or infinity, which no figure of a plan can be."""
    return isinstance(value, float) and not isfinite(value)


# Reading. ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Head:
    """The table `[plan]`."""

    format: int
    script: str
    level: str
    objective: str
    args: tuple[str, ...] = ()
    created: str = ""
    study: str = ""
    verdict: str = ""
    module: bool = False


@dataclass(frozen=True)
class _File:
    """A whole file, of which msgspec checks the types; what they cannot say is checked after it."""

    plan: _Head
    knobs: dict[str, Any] | None = None
    speedup: Speedup | None = None
    contributions: tuple[Contribution, ...] = ()
    equivalence: Equivalence | None = None
    environment: dict[str, Any] = field(default_factory=dict)


def read_plan(path: Path, known_knobs: Collection[str] | None = None) -> Plan:
    """Return the plan in a file. Everything that is wrong with it is a UsageError.

    `known_knobs` are the names that `[knobs]` may hold, None for any. `arg:NAME`, which stands
    for an argument of the script, is always one of them.
    """
    content = read_toml(path, "a plan", ", or make a new one with `gpuadvisor tune`")
    if content.get("plan") is None:
        raise UsageError(
            f"{path} is not a plan: it has no [plan] table; check the path, or make a plan with"
            " `gpuadvisor tune`."
        )
    try:
        return _plan(content, known_knobs)
    except _WrongPlan as error:
        raise UsageError(f"{path}: {error}.") from None


class _WrongPlan(ValueError):  # noqa: N818 - it becomes a UsageError, which names the file
    """What is wrong with which key of a plan."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"`{place}` {problem}")


def _must_be(place: str, wanted: str, value: Any) -> _WrongPlan:
    return _WrongPlan(place, f"must be {wanted}, not {brief(value)}; correct it in the file")


def _plan(content: dict[str, Any], known_knobs: Collection[str] | None) -> Plan:
    _check_format(content["plan"])
    file = _converted(content)
    plan = Plan(
        script=file.plan.script,
        args=file.plan.args,
        level=Level.parse(_one_of("plan.level", file.plan.level, Level)),
        objective=Objective(_one_of("plan.objective", file.plan.objective, Objective)),
        created=file.plan.created,
        settings=_settings(file.knobs, known_knobs),
        speedup=file.speedup,
        contributions=file.contributions,
        equivalence=file.equivalence,
        environment=_values("environment", file.environment),
        is_module=file.plan.module,
        study=file.plan.study,
        verdict=_verdict(file.plan.verdict),
    )
    _check_figures(file)
    _refuse_unknown_keys(content, file)
    return plan


def _check_format(head: Any) -> None:
    """Refuse a newer layout before anything else in it is called wrong."""
    version = head.get("format") if isinstance(head, dict) else None
    if type(version) is not int or version < 0:  # msgspec, or `_check_figures`, will say so
        return
    if version > FORMAT:
        raise _WrongPlan(
            "plan.format",
            f"is {version}, but this gpuadvisor reads plans up to format {FORMAT}; update"
            " gpuadvisor, or make a new plan with `gpuadvisor tune`",
        )
    if version < 1:
        raise _WrongPlan("plan.format", f"must be 1 to {FORMAT}; correct it in the file")


def _converted(content: dict[str, Any]) -> _File:
    import msgspec

    equivalence = content.get("equivalence")
    if isinstance(equivalence, dict):
        content = {**content, "equivalence": {"metric": "", **equivalence}}
    try:
        return msgspec.convert(content, _File)
    except msgspec.ValidationError as error:
        raise _problem(str(error), content) from None


_WORDS = {
    "str": "text in quotes",
    "bool": "true or false",
    "int": "a whole number of 0 or more",
    "float": "a finite number",
}
"""What msgspec expects, in words."""
_ARRAYS = {
    "args": "an array of texts in quotes",
    "contributions": "tables, each headed [[contributions]]",
}
_SETTING = "true, false, a finite number or text in quotes"


def _problem(error: str, content: Any) -> _WrongPlan:
    """Return what is wrong, from msgspec's words and the place in them."""
    found = re.search(r" - at `\$\.(.+)`$", error)
    place = found[1] if found else ""
    missing = re.match(r"Object missing required field `(\w+)`", error)
    if missing:
        key = f"{place}.{missing[1]}" if place else missing[1]
        return _WrongPlan(key, "is missing; add it, or make a new plan with `gpuadvisor tune`")
    if place.endswith("]"):  # a member that is wrong makes its array wrong
        place = place[: place.rindex("[")]
    value, steps = content, re.findall(r"(\w+)(?:\[(\d+)\])?", place)
    for key, index in steps:
        value = value[key][int(index)] if index else value[key]
    expected = re.match(r"Expected `(.+?)(?: \| null)?`", error)
    kind = expected[1] if expected else "float"  # a number out of range
    wanted = _ARRAYS.get(steps[-1][0]) or _WORDS.get(kind)
    return _must_be(
        place, wanted or (f"a table, [{place}]" if kind == "object" else _SETTING), value
    )


def _one_of(place: str, value: str, names: Iterable[object]) -> str:
    known = [str(name) for name in names]
    if value not in known:
        raise _must_be(place, f"one of {', '.join(known)}", value)
    return value


def _verdict(name: str) -> Verdict | None:
    return Verdict(_one_of("plan.verdict", name, _VERDICTS)) if name else None


def _settings(table: dict[str, Any] | None, known: Collection[str] | None) -> Settings:
    if table is None:
        raise _WrongPlan("knobs", "is missing: the plan sets nothing; make a new plan")
    settings = _values("knobs", table)
    for name, value in settings.items():
        if "\0" in name or "\0" in str(value):
            problem = "holds a NUL character, which no command line can; remove it"
            raise _WrongPlan(_place("knobs", name), problem)
        argument = name.startswith(ARGUMENT_PREFIX) and name != ARGUMENT_PREFIX
        if known is not None and name not in known and not argument:
            close = get_close_matches(name, known, n=1)
            meant = f"did you mean `{close[0]}`?" if close else "remove it, or update gpuadvisor"
            problem = f"is not a knob of this gpuadvisor; {meant}"
            raise _WrongPlan(_place("knobs", name), problem)
    return settings


def _values(name: str, table: Mapping[str, Any]) -> dict[str, Value]:
    """Return a table of settings, each checked."""
    for key, value in table.items():
        _check_setting(_place(name, key), value)
    return dict(table)


def _check_setting(place: str, value: Any) -> None:
    """Refuse what no knob can be set to, and what is too long to be shown or passed on."""
    if isinstance(value, str) and len(value) > LONGEST_VALUE:
        raise _must_be(place, f"text of at most {LONGEST_VALUE} characters", value)
    if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER:
        raise _must_be(place, f"a number of at most {LONGEST_INTEGER} bits", value)
    if not isinstance(value, bool | int | str) and not (
        isinstance(value, float) and isfinite(value)
    ):
        raise _must_be(place, _SETTING, value)


def _check_figures(file: _File) -> None:
    """Refuse what the types allow and no figure of a plan can be."""
    if file.plan.format < 0:
        raise _must_be("plan.format", _WORDS["int"], file.plan.format)
    if file.speedup is not None:
        for name in ("ratio", "ci99_low", "ci99_high"):
            _check_figure(f"speedup.{name}", getattr(file.speedup, name), is_ratio=True)
        if file.speedup.pairs < 0:
            raise _must_be("speedup.pairs", _WORDS["int"], file.speedup.pairs)
    for index, each in enumerate(file.contributions):
        place = f"contributions[{index}]"
        _check_setting(f"{place}.value", each.value)
        _check_figure(f"{place}.ratio", each.ratio, is_ratio=True)
        _check_figure(f"{place}.low", each.low)
        _check_figure(f"{place}.high", each.high)
    if file.equivalence is not None:
        _one_of("equivalence.status", file.equivalence.status, _STATUSES)
        _check_figure("equivalence.value", file.equivalence.value)
        _check_figure("equivalence.limit", file.equivalence.limit)


def _check_figure(place: str, value: float | None, is_ratio: bool = False) -> None:
    if value is not None and not isfinite(value):
        raise _must_be(place, _WORDS["float"], value)
    if is_ratio and value is not None and value <= 0:
        raise _must_be(place, "a number above 0", value)


def _refuse_unknown_keys(content: dict[str, Any], file: _File) -> None:
    """Refuse keys that nobody asked for: a misspelt one would be ignored in silence."""
    tables: list[tuple[str, Any, Any]] = [
        ("plan", content["plan"], file.plan),
        ("speedup", content.get("speedup"), file.speedup),
        ("equivalence", content.get("equivalence"), file.equivalence),
        ("", content, file),
    ]
    for index, each in enumerate(file.contributions):
        place = f"contributions[{index}]"
        tables.insert(-1, (place, content["contributions"][index], each))
    for name, table, read in tables:
        for key in table or ():
            if key not in {each.name for each in fields(read)}:
                problem = "is not a key of a plan; remove it or correct its spelling"
                raise _WrongPlan(_place(name, key), problem)


def _place(table: str, key: str) -> str:
    """Return a key as a sentence shows it, whatever somebody wrote there."""
    plain = key[:MOST_SHOWN] if key.isprintable() else json.dumps(key[:MOST_SHOWN])
    return f"{table}.{plain}" if table else plain


# The environment in which it was proven. --------------------------------------------------------


Fingerprint = dict[str, str | int | float | bool]
_SOFTWARE: tuple[str, ...] = ("python", "torch", "cuda", "cudnn", "driver", "platform")
_SOFTWARE += ("power_limit_w", "git_commit", "git_dirty", "gpuadvisor")
"""Fields of an environment that a plan has under the same names."""
_VERSIONS = (("torch", "torch", 2), ("cuda", "CUDA", 2), ("driver", "driver", 1))
"""Key of a version in a plan, its name in a sentence, and how many of its parts matter: `2.7` of
`2.7.1+cu126`, but `570` of `570.86.15`."""


def environment_fingerprint(environment: Environment) -> Fingerprint:
    """Return the `[environment]` of a plan; what could not be read is left out."""
    device = environment.device
    capability = device.compute_capability
    known = {
        "device": device.name,
        "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        "memory_bytes": device.memory_bytes,
        "cpu_cores": device.cores,
        **{name: getattr(environment, name) for name in _SOFTWARE},
    }
    return {key: value for key, value in known.items() if value is not None}


def environment_differences(plan: Plan, environment: Environment) -> list[str]:
    """Return a sentence for each difference that may change the plan's gain; empty if none.

    What the plan does not say is not compared. Patch levels are not: they seldom change speed.
    """
    proven = {key: str(value) for key, value in plan.environment.items()}
    here = environment_fingerprint(environment)
    sentences = []
    device = environment.device.name
    if proven.get("device", device) != device:
        sentences.append(
            f"the plan was proven on {proven['device']}, this is {device}:"
            " its gain is not known here"
        )
    for key, name, count in _VERSIONS:
        if key not in proven:
            continue
        versions = (proven[key], str(here.get(key, "")))
        then, now = (".".join(v.split("+")[0].split(".")[:count]) for v in versions)
        if not now:
            sentences.append(f"the plan was proven with {name} {then}, the one here is not known")
        elif then != now:
            sentences.append(
                f"the plan was proven with {name} {then}, this is {now}: its gain may differ here"
            )
    return sentences
