"""The rules themselves: a list of them, and the page of one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from gpuadvisor.rules import requirements
from gpuadvisor.rules.rule import Loaded

if TYPE_CHECKING:
    from rich.console import Console

KINDS = {
    requirements.WITH_PROFILE: "profile",
    requirements.WITH_STEPS: "profile",
    requirements.WITH_COUNTERS: "counters",
    requirements.WITH_DAEMON: "telemetry",
    requirements.SCRIPT.how: "script",
    requirements.RANKS.how: "profiles of all ranks",
    requirements.CEILINGS.how: "limits of the GPU",
}
"""How something is measured to what it is called here."""
EVIDENCE = {
    "profile": "a profile (`gpuadvisor profile`)",
    "counters": "hardware counters (`gpuadvisor profile --ncu`)",
    "telemetry": "telemetry (`gpuadvisor daemon start`, or a recording)",
    "script": "a run of the script (`gpuadvisor diagnose SCRIPT`)",
    "profiles of all ranks": "profiles of all ranks (`gpuadvisor import FOLDER`)",
    "limits of the GPU": "limits of the GPU (known by its name, or from `gpuadvisor bench-device`)",
}
_NAME = 28
"""Columns of a rule's name."""


def kinds_of(rule: Loaded) -> tuple[str, ...]:
    """Return what a rule needs to look: `profile`, `counters`, `telemetry`, ..."""
    return tuple(dict.fromkeys(KINDS.get(need.how, "profile") for need in rule.rule.needs))


def by_category(rules: Iterable[Loaded]) -> Mapping[str, list[Loaded]]:
    """Return the rules by their category, both in the order of their names."""
    found: dict[str, list[Loaded]] = {}
    for rule in sorted(rules, key=lambda each: (str(each.rule.category), each.name)):
        found.setdefault(str(rule.rule.category), []).append(rule)
    return found


def print_rules(console: Console, rules: Iterable[Loaded]) -> None:
    """Print a line for each rule below its category, wrapped on a terminal."""
    from rich.text import Text

    listed = list(rules)
    for category, found in by_category(listed).items():
        console.print(Text(category.replace("_", " "), "bold"))
        for rule in found:
            for line in _lines(rule, console.width if console.is_terminal else 0):
                console.print(Text(line), soft_wrap=True)
    words = "What a rule looks at and where its figures come from: gpuadvisor explain RULE"
    console.print(Text(f"\n{len(listed)} rules. {words}"), soft_wrap=not console.is_terminal)


def _lines(rule: Loaded, width: int) -> list[str]:
    head = f"  {rule.name:<{_NAME}}"
    text = f"{rule.title} [{', '.join(kinds_of(rule))}]"
    if not width:
        return [f"{head} {text}"]
    gap = " " * (len(head) + 1)
    return textwrap.wrap(text, max(width, 60), initial_indent=f"{head} ", subsequent_indent=gap)


def page_of(rule: Loaded) -> str:
    """Return the page of a rule in Markdown, with what belongs to it."""
    page = rule.page.strip() or f"# {rule.name}: {rule.title}"
    return f"{page}\n\n" + "\n".join(_belongs(rule)) + "\n"


def _belongs(rule: Loaded) -> Iterator[str]:
    yield f"- Category: {rule.rule.category}"
    yield f"- Needs: {', '.join(EVIDENCE.get(kind, kind) for kind in kinds_of(rule)) or 'nothing'}"
    if rule.rule.knobs:
        yield f"- Knobs that try it: {', '.join(f'`{knob}`' for knob in rule.rule.knobs)}"
    if rule.rule.hides:
        yield f"- Its symptoms, hidden where it is found: {', '.join(rule.rule.hides)}"
