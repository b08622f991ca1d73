"""A project's benchmarks: `[tool.gpuadvisor.gate]` in pyproject.toml, `[gate]` in gpuadvisor.toml.

What the table says itself holds for all benchmarks, which may say something else each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

from gpuadvisor.domain.gate import Benchmark
from gpuadvisor.errors import UsageError
from gpuadvisor.printable import brief
from gpuadvisor.toml_file import read_toml

FILES = {"gpuadvisor.toml": "gate", "pyproject.toml": "tool.gpuadvisor.gate"}
"""Files in which the table may stand, and what it is called there; the first that has one counts.
"""
LIST = "benchmark"

Check = tuple[str, Callable[[Any], bool]]
"""What a value has to be, in words, and whether one is."""


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value) and value > 0


NUMBER: Check = ("a number above 0", _is_number)
BOOLEAN: Check = ("true or false", lambda value: isinstance(value, bool))
TEXT: Check = ("text in quotes", lambda value: isinstance(value, str) and bool(value.strip()))
TEXTS: Check = (
    "an array of texts in quotes",
    lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
)
SHARED: Mapping[str, Check] = {
    "tolerance": NUMBER,
    "limit": NUMBER,
    "measure": NUMBER,
    "timeout": NUMBER,
    "samples-per-step": NUMBER,
    "turns": BOOLEAN,
    "metrics": TEXTS,
    "only": TEXTS,
    "link": TEXTS,
    "setup-cmd": TEXT,
}
"""Keys of the table and of its benchmarks: the options of the command that are called so, but for
`metrics`, several `--metric`, `only`, its names, and `turns`, which is false as `--no-turns`."""
OWN: Mapping[str, Check] = {"name": TEXT, "script": TEXT, "module": TEXT, "args": TEXTS}
"""Keys of a benchmark alone."""


@dataclass(frozen=True)
class Configuration:
    """A project's benchmarks."""

    path: Path
    benchmarks: tuple[Benchmark, ...]

    def chosen(self, name: str) -> tuple[Benchmark, ...]:
        """Return the benchmark of that name, all for an empty one; UsageError if there is none."""
        found = tuple(each for each in self.benchmarks if name in ("", each.name))
        if not found:
            names = ", ".join(each.name for each in self.benchmarks)
            raise UsageError(
                f"there is no script {name}, nor a benchmark in {self.path}, which has {names}"
            )
        return found


def find_configuration(folder: Path) -> Configuration | None:
    """Return the configuration of a folder, or of the nearest above it in its repository.

    None where there is none; UsageError for one that is wrong.
    """
    found = _nearest(folder)
    return None if found is None else Configuration(found[0], _benchmarks(*found))


def shared_values(folder: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """Return what a configuration says for all its benchmarks, and its file; it needs to have none.

    As for `find_configuration` otherwise.
    """
    found = _nearest(folder)
    if found is None:
        return None
    return found[0], _shared(*found)


def _nearest(folder: Path) -> tuple[Path, str, Any] | None:
    """Return the file of the configuration of a folder, what the table is called, and the table."""
    for each in (folder.absolute(), *folder.absolute().parents):
        for name, place in FILES.items():
            path = each / name
            if (table := table_of(path, place)) is not None:
                return path, place, table
        if (each / ".git").exists():
            break
    return None


def table_of(path: Path, place: str) -> Any:
    """Return the table `place` of a file; None where it or the file is not there.

    UsageError for a file that is no TOML.
    """
    if not path.is_file():
        return None
    value: Any = read_toml(path, "a configuration")
    for key in place.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _shared(path: Path, place: str, table: Any) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: `{place}` has to be a table, [{place}]")
    shared = {key: value for key, value in table.items() if key != LIST}
    _check(path, place, shared, SHARED, (LIST,))
    return shared


def _benchmarks(path: Path, place: str, table: Any) -> tuple[Benchmark, ...]:
    shared = _shared(path, place, table)
    tables = table.get(LIST, [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise UsageError(
            f"{path}: `{place}.{LIST}` has to be tables, each headed [[{place}.{LIST}]]"
        )
    if not tables:
        raise UsageError(f"{path}: there is no benchmark: add one, headed [[{place}.{LIST}]]")
    found: dict[str, Benchmark] = {}
    for number, each in enumerate(tables):
        here = f"{place}.{LIST}[{number}]"
        _check(path, here, each, {**OWN, **SHARED})
        made = _benchmark(path, here, each, shared)
        if made.name in found:
            raise UsageError(
                f"{path}: two benchmarks are called {brief(made.name)}: give each a name of its own"
            )
        found[made.name] = made
    return tuple(found.values())


def _benchmark(
    path: Path, place: str, table: Mapping[str, Any], shared: Mapping[str, Any]
) -> Benchmark:
    if "name" not in table:
        raise UsageError(f"{path}: `{place}.name` is missing: give the benchmark one")
    if ("script" in table) == ("module" in table):
        raise UsageError(f"{path}: `{place}` needs either `script` or `module`")
    name, is_module = table["name"], "module" in table
    if name.endswith(".py") or not name.isprintable():
        raise UsageError(
            f"{path}: `{place}.name` {brief(name)} would be taken for a script: name it otherwise"
        )
    values = {key: value for key, value in {**shared, **table}.items() if key in SHARED}
    script = table["module" if is_module else "script"]
    return Benchmark(name, script, is_module, tuple(table.get("args", ())), values)


def _check(
    path: Path,
    place: str,
    table: Mapping[str, Any],
    keys: Mapping[str, Check],
    others: tuple[str, ...] = (),
) -> None:
    """Raise UsageError for a key that is not known, or a value of the wrong kind."""
    for key, value in table.items():
        if key not in keys:
            known = (*keys, *others)
            close = get_close_matches(key.replace("_", "-"), known, n=1)
            meant = f"did you mean `{close[0]}`? " if close else ""
            raise UsageError(
                f"{path}: `{place}.{key}` is not known: {meant}known are {', '.join(known)}"
            )
        wanted, is_right = keys[key]
        if not is_right(value):
            raise UsageError(f"{path}: `{place}.{key}` has to be {wanted}, not {brief(value)}")
