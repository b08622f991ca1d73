"""How results are shown: a table on a terminal, plain lines elsewhere, JSON for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuadvisor.doctor.check import Check, CheckState
from gpuadvisor.reports import figures, strict_json

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA_VERSION = 1
"""Version of the JSON: raised when a key changes its meaning or goes."""
_STYLES = {CheckState.OK: "green", CheckState.WARNING: "yellow", CheckState.PROBLEM: "bold red"}


def as_json(checks: Sequence[Check], version: str) -> str:
    """Return the results as one JSON object; `version` is gpuadvisor's."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "gpuadvisor": version,
        "fit_for_tuning": not has_problem(checks),
        "checks": [
            {"name": c.name, "state": str(c.state), "detail": c.detail, "fix": c.fix or None}
            for c in checks
        ],
    }
    return strict_json.text(document)


def as_text(checks: Sequence[Check]) -> str:
    """Return aligned lines without colour or wrapping, for pipes and logs."""
    width = max((len(check.name) for check in checks), default=0)
    lines = []
    for check in checks:
        lines.append(f"{check.name:<{width}}  {check.state:<7}  {check.detail}")
        if check.fix:
            lines.append(f"{'':<{width}}  {'':<7}  fix: {check.fix}")
    return "\n".join([*lines, "", summary(checks)])


def as_table(checks: Sequence[Check]) -> Table:
    """Return the table for a terminal; the fix stands below what it cures."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        detail = Text(check.detail)
        if check.fix:
            detail.append(f"\nfix: {check.fix}", style="cyan")
        table.add_row(check.name, Text(check.state, style=_STYLES[check.state]), detail)
    return table


def summary(checks: Sequence[Check]) -> str:
    """Return the verdict in one line."""
    problems = sum(check.state is CheckState.PROBLEM for check in checks)
    warnings = sum(check.state is CheckState.WARNING for check in checks)
    notes = f", {figures.count(warnings, 'warning')}" if warnings else ""
    if problems:
        return f"Tuning cannot work here yet: {figures.count(problems, 'problem')}{notes}."
    return f"Ready to tune{notes}."


def has_problem(checks: Sequence[Check]) -> bool:
    """Say whether anything keeps tuning from working."""
    return any(check.state is CheckState.PROBLEM for check in checks)
