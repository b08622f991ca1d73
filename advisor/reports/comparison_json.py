"""A comparison of two profiles for machines. Every field is explained in docs/json.md."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gpuadvisor.reports import strict_json
from gpuadvisor.rules.facts.comparison import Change, Comparison, Side

SCHEMA_VERSION = 1
"""Grows when a field is removed or changes its meaning, not when one is added."""
MOST_ROWS = 2000
"""Of kernels and operators, those that changed most."""


def comparison_json_text(comparison: Comparison) -> str:
    """Return the comparison as indented JSON."""
    return strict_json.text(comparison_json(comparison))


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as values."""
    operators = comparison.operators
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "comparison",
        "before": _side(comparison.before),
        "after": _side(comparison.after),
        "per_step": comparison.per_step,
        "parts": _changes(comparison.parts),
        "kernels": _changes(comparison.kernels),
        "operators": None if operators is None else _changes(operators),
        "copies": _changes(comparison.copies),
        "remarks": list(comparison.remarks),
    }


def _side(side: Side) -> dict[str, Any]:
    return {"profile" if name == "name" else name: value for name, value in asdict(side).items()}


def _changes(changes: tuple[Change, ...]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "verdict": str(each.verdict),
            "worth_ns": each.worth_ns,
            "before": None if each.before is None else asdict(each.before),
            "after": None if each.after is None else asdict(each.after),
        }
        for each in changes[:MOST_ROWS]
    ]
