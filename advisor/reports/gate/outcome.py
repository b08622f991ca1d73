"""How a gate ended, for outputs that CI needs in any case: a result, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuadvisor.domain.gate import Difference, GateResult, GateSide, GateVerdict, MetricRole
from gpuadvisor.errors import AdvisorError, RefusedError, ScriptError
from gpuadvisor.printable import printable
from gpuadvisor.reports.gate.document import gate_json, sentence, why

WORST = ("fail", "error", "refused", "inconclusive", "pass")
"""How a gate may end. Several benchmarks come to the first of these that one of them ended in."""


@dataclass(frozen=True)
class Outcome:
    """How the gate of one benchmark ended."""

    name: str
    """Name of the benchmark; of its script where it has none."""
    ending: str
    """`pass`, `fail`, `inconclusive`; `refused` where the machine is in no state to compare,
    `error` where what is asked for cannot be done or the script fails in both versions."""
    why: str
    """What that rests on, as a sentence without a full stop."""
    found: GateResult | None = None
    """None where nothing was compared."""
    output: str = ""
    """The end of what a script printed that failed in both versions."""
    script: str = ""
    """The script's path from the repository's root; empty for a module."""


@dataclass(frozen=True)
class Case:
    """What a gate says of one metric, or of a version that is broken."""

    key: str
    """`step_time`, `broken`."""
    title: str
    ending: str
    why: str


def outcome_of(name: str, found: GateResult, script: str = "") -> Outcome:
    """Return the outcome of a gate that came to a result."""
    return Outcome(name, str(found.verdict), why(found), found, found.output, script)


def outcome_of_error(name: str, error: Exception, script: str = "") -> Outcome:
    """Return the outcome of a gate that came to none."""
    ending = "refused" if isinstance(error, RefusedError) else "error"
    known = isinstance(error, AdvisorError)
    reason = str(error) if known else f"this is a bug in gpuadvisor ({type(error).__name__})"
    output = error.output if isinstance(error, ScriptError) else ""
    return Outcome(name, ending, reason, None, output, script)


def cases(outcome: Outcome) -> list[Case]:
    """Return what is said of each metric; one of the gate as a whole where none was compared."""
    found = outcome.found
    if found is None or found.broken is not None or not found.differences:
        key, title = ("broken", "Runs") if found else ("gate", "Gate")
        return [Case(key, title, outcome.ending, outcome.why)]
    return [_case(each) for each in found.differences]


def outcomes_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return one outcome as JSON, or several with what they come to together."""
    documents = [_json(each) for each in outcomes]
    if len(documents) == 1:
        return documents[0]
    verdict = next(word for word in WORST if word in [each.ending for each in outcomes])
    version = documents[0]["schema_version"]
    return {"schema_version": version, "verdict": verdict, "benchmarks": documents}


def plain(words: str) -> str:
    """Return any text on one line, without what is no printable character."""
    return printable(" ".join(words.split()))


def _case(each: Difference) -> Case:
    guards = each.role is not MetricRole.DECIDES and each.verdict is not GateVerdict.FAIL
    # What is no matter for the verdict is none that a reader of these formats should look after.
    ending = "pass" if guards or each.role is MetricRole.REPORTED else str(each.verdict)
    return Case(each.metric, each.title, ending, sentence(each))


def _json(outcome: Outcome) -> dict[str, Any]:
    if outcome.found is not None:
        return {"name": outcome.name, **gate_json(outcome.found)}
    nobody = GateSide("", None, (), "")
    empty = GateResult(GateVerdict.INCONCLUSIVE, outcome.why, nobody, nobody, output=outcome.output)
    verdict = {"verdict": outcome.ending, "base": None, "head": None}
    return {"name": outcome.name, **gate_json(empty), **verdict}
