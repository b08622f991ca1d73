"""Every rule's finding has a place in the program where the profile has stacks: all rules at once,
so that a new one that loses it fails here."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.finding import ScopeKind
from gpuadvisor.domain.profile import TABLES, Range
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.facts.summary import Facts
from tests.rules.test_catalogue import RULES, cases

ROOT = Path(__file__).parents[2]
FRAMES = ("train.py(3): main", "nn.Module: Net_0", "net.py(7): forward", "nn.Module: Block_2")
"""What runs all the time on every thread in `with_stacks`, outermost first."""
MACHINES = (ScopeKind.GPU, ScopeKind.RANK)
"""What a finding is about that no line of the program is responsible for."""


def with_stacks(facts):
    """Return the same facts of a profile in which Python functions were recorded."""
    profile = facts.profile
    texts = list(profile.header.texts)
    made = MemoryProfile()
    for table in TABLES:
        if profile.rows(table):
            made.add(table, profile.columns(table))
    threads = set()
    for table in ("calls", "operators", "ranges"):
        columns = profile.columns(table, ("process", "thread"))
        threads |= set(zip(columns["process"].tolist(), columns["thread"].tolist(), strict=True))
    end_ns = 1 + max(
        int((columns["begin_ns"] + columns["duration_ns"]).max())
        for table in ("kernels", "copies", "calls", "operators", "ranges")
        if len((columns := profile.columns(table))["begin_ns"])
    )
    rows = [(*thread, len(texts) + number) for thread in sorted(threads) for number in range(4)]
    values = {
        "begin_ns": [0] * len(rows),
        "duration_ns": [end_ns - number % 4 for number in range(len(rows))],
        "process": [row[0] for row in rows],
        "thread": [row[1] for row in rows],
        "name": [row[2] for row in rows],
        "kind": [Range.PYTHON] * len(rows),
    }
    made.add("ranges", {name: np.array(values[name], kind) for name, kind in
                        TABLES["ranges"].items()})  # fmt: skip
    made.finish(replace(profile.header, texts=(*texts, *FRAMES)))
    return Facts(made, facts.ceilings, facts.fitness)


def of_program(evidence):
    """Say whether it is of a recording that tells what the program launched when."""
    facts = evidence.facts
    if facts is None or not facts.has_timeline:
        return False
    if facts.profile.rows("kernels"):
        return bool(facts.launched.known.any())
    return any(facts.profile.rows(table) for table in ("operators", "ranges"))


def evidence_of(name):
    """The evidence of the first case of a rule that is of a program; None where there is none."""
    made = (case() for case in cases(name).FIRES.values())
    return next(filter(of_program, made), None)


@pytest.fixture(scope="module")
def programs():
    """The evidence that `evidence_of` returns of each rule that has one."""
    return {name: found for name in RULES if (found := evidence_of(name)) is not None}


def test_findings_name_line_function_and_module(programs):
    for name, evidence in programs.items():
        without = diagnose(evidence, [RULES[name]])
        found = diagnose(replace(evidence, facts=with_stacks(evidence.facts)), [RULES[name]])
        assert found.failed == (), name
        summaries = [[each.summary for each in of.findings] for of in (found, without)]
        assert summaries[0] == summaries[1], name
        places = {each.place and (each.source, each.place.function, each.place.module)
                  for each in found.findings if each.scope.kind not in MACHINES}  # fmt: skip
        assert places <= {("net.py:7", "forward", "Net_0.Block_2")}, name


def test_pages_that_the_host_takes_back_are_placed_where_it_touches_them():
    rule = RULES["managed_memory"]
    evidence = cases("managed_memory").FIRES["when the host reads"]()
    found = diagnose(replace(evidence, facts=with_stacks(evidence.facts)), [rule]).findings
    assert [each.source for each in found] == ["net.py:7"]


def test_only_rules_of_machines_and_counters_have_no_evidence_of_a_program(programs):
    """Else a rule could escape the test above."""
    without = {name for name in RULES if name not in programs}
    machines = {path.stem for path in (ROOT / "rules" / "health").glob("*.py")}
    counted = {
        name
        for name in without
        if all(
            evidence.facts is not None and evidence.facts.profile.header.source == "ncu"
            for evidence in (case() for case in cases(name).FIRES.values())
        )
    }
    assert without - machines - counted == set()
