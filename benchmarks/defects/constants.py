"""Vary the constants of rules that are marked as our own, and say which of them decide.

    python benchmarks/defects/constants.py results.jsonl out.jsonl HOME [HOME ...]
        [--part I/N] [--seconds S]
    python benchmarks/defects/constants.py --table out.jsonl [out.jsonl ...]

Each constant whose docstring says `[own` is made a quarter smaller and a quarter larger (of what is
above one, between one and two; at least by one, of whole numbers; a share stays one), alone, and
the rules are asked again about the profiles that were kept: does the first finding change, or a
range that is shown by more than a point? A constant is tried on a profile where a function ran that
reads it. What other constants are made of it at import, and a default of an argument, stay as they
were.

The table says which decide nothing here; of those that no profile reaches, it says so.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import pkgutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from fit import read
from rediagnose import profiles_of

from gpuadvisor import rules
from gpuadvisor.domain.finding import Diagnosis
from gpuadvisor.domain.severity import Severity
from gpuadvisor.profiling.evidence import evidence_of
from gpuadvisor.profiling.resolving import ResolvedProfile, stored_profile
from gpuadvisor.rules import engine
from gpuadvisor.rules.calibration import calibration
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.registry import load_rules
from gpuadvisor.rules.rule import Loaded, RuleResult

MARK = "[own"
BY = 0.25
POINTS = 1.0
"""Percent of the run by which an end of a range has to move to count."""
CATALOGUE = "gpuadvisor.rules.catalogue."
FACTS = "gpuadvisor.rules.facts."


@dataclass(frozen=True)
class Constant:
    """One that is marked, and the modules that read it by its name."""

    module: str
    name: str
    value: Any
    readers: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.module.removeprefix('gpuadvisor.rules.')}.{self.name}"

    @contextmanager
    def set_to(self, value: Any) -> Iterator[None]:
        """Have all modules read another value."""
        modules = [sys.modules[each] for each in self.readers]
        for each in modules:
            setattr(each, self.name, value)
        try:
            yield
        finally:
            for each in modules:
                setattr(each, self.name, self.value)


def constants() -> list[Constant]:
    """Return the marked constants of all modules of rules."""
    names = [each.name for each in pkgutil.walk_packages(rules.__path__, "gpuadvisor.rules.")]
    trees = {name: _tree(importlib.import_module(name)) for name in names}
    imported: dict[tuple[str, str], list[str]] = {}
    for reader, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for each in node.names:
                    imported.setdefault((node.module, each.name), []).append(reader)
    found = []
    for module, tree in trees.items():
        for node, text in zip(tree.body, tree.body[1:], strict=False):
            name = _assigned(node)
            if name and MARK in _string(text):
                readers = (module, *imported.get((module, name), ()))
                value = getattr(sys.modules[module], name)
                found.append(Constant(module, name, value, readers))
    return found


def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(Path(module.__file__ or "").read_text("utf-8"))


def _assigned(node: ast.stmt) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else ""


def _string(node: ast.stmt) -> str:
    value = node.value if isinstance(node, ast.Expr) else None
    told = value.value if isinstance(value, ast.Constant) else ""
    return told if isinstance(told, str) else ""


def varied(value: Any, by: float) -> Any:
    """Return a value changed by a share; the same where it is none of numbers."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        step = max(round(abs(by) * abs(value)), 1)
        return value + (step if by > 0 else -step)
    if isinstance(value, float):
        if 1 < value < 2:
            return 1 + (value - 1) * (1 + by)
        return min(value * (1 + by), 1.0) if 0 < value <= 1 else value * (1 + by)
    if isinstance(value, tuple):
        return tuple(varied(each, by) for each in value)
    if isinstance(value, Mapping):
        return {key: varied(each, by) for key, each in value.items()}
    return value


def shown(diagnosis: Diagnosis) -> tuple[str, dict[str, tuple[float, float]]]:
    """Return the first finding that is a notice at least, and the ranges of all that are shown."""
    ranges, first = {}, "nothing"
    for each in diagnosis.findings:
        if each.hidden_by is not None:
            continue
        if first == "nothing" and each.severity.rank >= Severity.NOTICE.rank:
            first = each.rule
        span = each.improvement_pct
        if span is not None and each.severity.rank >= Severity.NOTICE.rank:
            ranges[each.rule] = (span.low, span.high)
    return first, ranges


def moved(
    one: Mapping[str, tuple[float, float]], other: Mapping[str, tuple[float, float]]
) -> float:
    """Return by how many points a range moves at most: all of one that is there only once."""
    nothing = (0.0, 0.0)
    return max(
        (
            max(abs(a - b) for a, b in zip(one.get(rule, nothing), other.get(rule, nothing),
                                           strict=True))
            for rule in {*one, *other}
        ),
        default=0.0,
    )  # fmt: skip


def _said(found: tuple[RuleResult, ...], _evidence: Evidence) -> tuple[RuleResult, ...]:
    return found


class Asked:
    """What the rules say of one profile, and say with another constant."""

    def __init__(self, profile: ResolvedProfile, every: Sequence[Loaded]) -> None:
        self.profile, self.rules = profile, every
        self.ran: set[CodeType] = set()
        sys.setprofile(self._ran)
        try:
            self.evidence = self._evidence()
            self.said = {each.name: self._results(each) for each in every}
            self.usual = shown(self._judged(self.said))
        finally:
            sys.setprofile(None)
        self.names: dict[str, set[str]] = {}
        for code in self.ran:
            self.names.setdefault(code.co_filename, set()).update(code.co_names)

    def _ran(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            self.ran.add(frame.f_code)

    def _evidence(self) -> Evidence:
        return evidence_of(self.profile)

    def _results(self, rule: Loaded) -> tuple[RuleResult, ...]:
        return () if rule.missing(self.evidence) else tuple(rule.check(self.evidence))

    def _judged(self, said: Mapping[str, tuple[RuleResult, ...]]) -> Diagnosis:
        known = [replace(each, check=partial(_said, said[each.name])) for each in self.rules]
        return engine.diagnose(self.evidence, known, calibration())

    def reaches(self, constant: Constant) -> bool:
        """Tell whether a function ran that reads it."""
        files = (str(sys.modules[each].__file__) for each in constant.readers)
        return any(constant.name in self.names.get(each, ()) for each in files)

    def with_another(self, constant: Constant, value: Any) -> tuple[bool, float]:
        """Return whether the first finding changes, and by how many points a range does."""
        kept = self.evidence
        with constant.set_to(value):
            try:
                if any(each.startswith(FACTS) for each in constant.readers):
                    self.evidence = self._evidence()
                only = constant.module.removeprefix(CATALOGUE)
                alone = all(each.startswith(CATALOGUE) for each in constant.readers)
                again = {
                    each.name: self._results(each)
                    if not alone or each.name == only or len(constant.readers) > 1
                    else self.said[each.name]
                    for each in self.rules
                }
                if alone and again == self.said:
                    return False, 0.0
                first, ranges = shown(self._judged(again))
            finally:
                self.evidence = kept
        return first != self.usual[0], moved(ranges, self.usual[1])


def vary(
    results: Path, out: Path, homes: Sequence[Path], part: tuple[int, int], seconds: float
) -> None:
    """Write a line for each profile: what each constant that it reaches changes."""
    every, own, began = load_rules(), constants(), time.monotonic()
    with out.open("w") as file:
        for number, (row, profile) in enumerate(profiles_of(read([results]), homes)):
            if number % part[1] != part[0]:
                continue
            if time.monotonic() - began > seconds:
                break
            asked = Asked(stored_profile(profile), every)
            found: dict[str, list[float] | None] = {}
            for each in own:
                tried = [varied(each.value, by) for by in (-BY, BY)]
                if tried[0] == each.value or not asked.reaches(each):
                    continue
                try:
                    effects = [asked.with_another(each, value) for value in tried]
                except (ValueError, IndexError):  # what was made of it at import does not fit it
                    found[each.label] = None
                    continue
                found[each.label] = [any(a for a, _ in effects), max(b for _, b in effects)]
            line = {"pair": row["pair"], "found": found}
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
            file.flush()


def table(paths: Sequence[Path]) -> str:
    """Return which constants decide, in how many programs, and which do not."""
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    own = constants()
    words = [each.label for each in own if varied(each.value, -BY) == each.value]
    first: dict[str, int] = {each.label: 0 for each in own}
    ranges, tried, most = dict(first), dict(first), dict.fromkeys(first, 0.0)
    for line in lines:
        for label, effect in line["found"].items():
            if effect is None:
                words.append(label)
            elif label in first:
                changes, points = effect
                tried[label] += 1
                first[label] += changes
                ranges[label] += points > POINTS
                most[label] = max(most[label], points)
    deciding = sorted(
        (each for each in tried if first[each] or ranges[each]),
        key=lambda each: (-first[each], -ranges[each], each),
    )
    told_apart = {*deciding, *words}
    silent = [each for each in tried if tried[each] and each not in told_apart]
    unreached = [each for each in tried if not tried[each] and each not in told_apart]
    told = [
        f"{len(own)} constants, {len(lines)} programs.\n",
        "| decides | programs that reach it | first finding changes | a range by over"
        f" {POINTS:.0f} point | by at most |",
        "| --- | --: | --: | --: | --: |",
    ]
    told += [
        f"| `{each}` | {tried[each]} | {first[each]} | {ranges[each]} | {most[each]:.1f} |"
        for each in deciding
    ]
    for name, some in (
        ("Does not decide", silent),
        ("Not reached by these programs", unreached),
        ("Not varied, being no number or a part of others", sorted({*words})),
    ):
        told.append(f"\n{name} ({len(some)}): {', '.join(f'`{each}`' for each in some)}.")
    return "\n".join(told)


def main() -> None:
    """Vary them, or print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--table", type=Path, nargs="+", help="print what these say")
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("homes", type=Path, nargs="*")
    parser.add_argument("--part", default="0/1", help="I/N: each Nth profile from the Ith on")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin with none after that")
    chosen = parser.parse_args()
    if chosen.table:
        print(table(chosen.table))
        return
    if not chosen.homes:
        parser.error("results, a file for the lines and a folder of profiles are needed")
    first, count = (int(each) for each in chosen.part.split("/"))
    vary(chosen.results, chosen.out, chosen.homes, (first, count), chosen.seconds)


if __name__ == "__main__":
    main()
