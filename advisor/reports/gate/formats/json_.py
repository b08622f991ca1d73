"""The result with every run, as `--json` prints it."""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.reports import strict_json
from gpuadvisor.reports.gate.outcome import Outcome, outcomes_json

FILE = "gpuadvisor-gate.json"


def render(outcomes: Sequence[Outcome]) -> str:
    """Return the document that docs/json.md describes."""
    return strict_json.text(outcomes_json(outcomes)) + "\n"
