"""Plans as TOML files: what was proven, to be read by people and applied by `gpuadvisor run`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.knobs import ARGUMENT_PREFIX, Contribution, Level, Settings
from gpuadvisor.domain.study import Equivalence, Objective, Plan, Speedup
from gpuadvisor.errors import UsageError
from gpuadvisor.printable import printable
from gpuadvisor.tuning.fingerprints import environment_differences, environment_fingerprint
from gpuadvisor.tuning.toml_table import MAX_BYTES, Table, load_toml

__all__ = [
    "FORMAT",
    "environment_differences",
    "environment_fingerprint",
    "plan_path",
    "read_plan",
    "write_plan",
]

FORMAT = 1
"""Version of the file's layout; a reader refuses those that are newer than itself."""
_STATUSES = ("equivalent", "wrong", "not_checked")


def plan_path(command: Command, wanted: Path | None = None) -> Path:
    """Return where the plan of a script goes: where it is `wanted`, or beside the user.

    UsageError if it could not be written there in the end.
    """
    script = Path(command.script)
    stem = command.script.rpartition(".")[2] if command.is_module else script.stem
    path = wanted or Path(f"{stem or 'script'}.plan.toml")
    problem = _unwritable(path) or _precious(path, script)
    if problem is not None:
        raise UsageError(
            f"the plan could not be written to {path}: {problem}; choose another place with --plan"
        )
    return path


def _precious(path: Path, script: Path) -> str | None:
    """Return why a file that is there is not to be replaced by a plan, or None."""
    if not path.exists():
        return None
    if script.exists() and path.samefile(script):
        return "it is the script itself"
    if not path.is_file():
        return "it is no ordinary file"
    if path.suffix == ".toml":
        return None
    with path.open("rb") as file:
        return None if b"[plan]" in file.read(MAX_BYTES) else "a file that is no plan is there"


def _unwritable(path: Path) -> str | None:
    if path.is_dir():
        return "it is a folder"
    folder = path.absolute().parent
    if not folder.is_dir():
        return f"there is no folder {folder}"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"the folder {folder} is read-only"


def write_plan(plan: Plan, path: Path) -> None:
    """Write the plan, over one that is there; the file is whole or not there at any moment.

    UsageError where it cannot be written.
    """
    import tomli_w

    text = _header(plan, path) + tomli_w.dumps(_document(plan)) + _contribution_tables(plan)
    # Bytes of a file name that are no text are replaced: better a plan with a `?` than none.
    content = text.encode("utf-8", "replace")
    try:
        _replace(path, content)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot write the plan to {path}: {reason}; choose another place for it."
        ) from None


def read_plan(path: Path, known_knobs: Collection[str] | None = None) -> Plan:
    """Return the plan in this file. Everything that is wrong with it is a UsageError.

    `known_knobs` are the names that `[knobs]` may hold, None for any. `arg:NAME`, which stands
    for an argument of the script, is always one of them.
    """
    root = load_toml(path, "a plan")
    head = root.table("plan")
    if head is None:
        raise UsageError(
            f"{path} is not a plan: it has no [plan] table; check the path, or make a plan with"
            " `gpuadvisor tune`."
        )
    _check_format(head)
    plan = Plan(
        script=head.text("script"),
        args=head.texts("args"),
        level=_level(head),
        objective=_objective(head),
        created=head.text("created", ""),
        settings=_settings(root, known_knobs),
        speedup=_speedup(root.table("speedup")),
        contributions=tuple(map(_contribution, root.tables("contributions"))),
        equivalence=_equivalence(root.table("equivalence")),
        environment=_environment(root.table("environment")),
        is_module=head.flag("module"),
    )
    head.finish()
    root.finish()
    return plan


def _header(plan: Plan, path: Path) -> str:
    script = ["-m", plan.script] if plan.is_module else [plan.script]
    command = ["gpuadvisor", "run", "--plan", path.name, *script]
    words = shlex.join([*command, "--", *plan.args] if plan.args else command)
    return (
        "# A plan of gpuadvisor: settings for a script, and what they were measured to bring.\n"
        "# It holds no code. To run the script with them, unchanged:\n"
        "#\n"
        f"#   {printable(words)}\n"  # a line break in a name must not end the comment
        "#\n"
        "# Lines under [knobs] may be removed or changed, but the figures were measured with\n"
        "# all of them as they are.\n\n"
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
    """Return one [[contributions]] each; the library would write short ones on one line."""
    import tomli_w

    return "".join(
        "\n[[contributions]]\n" + tomli_w.dumps(_present(vars(each)))
        for each in plan.contributions
        if not _odd(each.ratio)
    )


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a plan can express: it has no null, so an absent key stands for None."""
    return {key: value for key, value in values.items() if value is not None and not _odd(value)}


def _odd(value: Any) -> bool:
    """Say whether it is NaN or infinity: TOML has them, but no figure of a plan can be one."""
    return isinstance(value, float) and not isfinite(value)


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name[:50]}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _check_format(head: Table) -> None:
    version = head.integer("format")
    if version > FORMAT:
        raise head.error(
            "format",
            f"is {version}, but this gpuadvisor reads plans up to format {FORMAT}; update"
            " gpuadvisor, or make a new plan with `gpuadvisor tune`",
        )
    if version < 1:
        raise head.error("format", f"must be 1 to {FORMAT}; correct it in the file")


def _level(head: Table) -> Level:
    return Level.parse(head.one_of("level", Level))


def _objective(head: Table) -> Objective:
    return Objective(head.one_of("objective", Objective))


def _settings(root: Table, known: Collection[str] | None) -> Settings:
    table = root.table("knobs")
    if table is None:
        raise root.error("knobs", "is missing: the plan sets nothing; make a new plan")
    settings = table.values()
    for name, value in settings.items():
        if "\0" in name or "\0" in str(value):
            raise table.error(name, "holds a NUL character, which no command line can; remove it")
        argument = name.startswith(ARGUMENT_PREFIX) and name != ARGUMENT_PREFIX
        if known is not None and name not in known and not argument:
            close = get_close_matches(name, known, n=1)
            meant = f"did you mean `{close[0]}`?" if close else "remove it, or update gpuadvisor"
            raise table.error(name, f"is not a knob of this gpuadvisor; {meant}")
    return settings


def _speedup(table: Table | None) -> Speedup | None:
    if table is None:
        return None
    speedup = Speedup(
        ratio=table.ratio("ratio"),
        ci99_low=table.ratio("ci99_low"),
        ci99_high=table.ratio("ci99_high"),
        pairs=table.integer("pairs"),
    )
    table.finish()
    return speedup


def _contribution(table: Table) -> Contribution:
    contribution = Contribution(
        knob=table.text("knob"),
        value=table.value("value"),
        ratio=table.ratio("ratio"),
        low=table.optional_number("low"),
        high=table.optional_number("high"),
    )
    table.finish()
    return contribution


def _equivalence(table: Table | None) -> Equivalence | None:
    if table is None:
        return None
    equivalence = Equivalence(
        status=table.one_of("status", _STATUSES),
        metric=table.text("metric", ""),
        value=table.optional_number("value"),
        limit=table.optional_number("limit"),
        reason=table.text("reason", ""),
    )
    table.finish()
    return equivalence


def _environment(table: Table | None) -> dict[str, str | int | float | bool]:
    return {} if table is None else table.values()
