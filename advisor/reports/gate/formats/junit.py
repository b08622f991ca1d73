"""JUnit XML, which most CI systems show: a test suite a benchmark, a test case a metric.

What is inconclusive is skipped, with its reason; where nothing could be compared it is an error.
Schema: junit-10.xsd of Jenkins' xUnit plugin.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

from gpuadvisor.domain.explanation import EXPLAINED
from gpuadvisor.reports.gate.document import printed
from gpuadvisor.reports.gate.explanation import explanation_lines
from gpuadvisor.reports.gate.outcome import Case, Outcome, cases, plain

FILE = "gpuadvisor-gate.xml"
ELEMENTS = {"fail": "failure", "inconclusive": "skipped", "refused": "error", "error": "error"}
_COUNTED = ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")
_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML 1.0 document may hold, however it is escaped."""


def render(outcomes: Sequence[Outcome]) -> str:
    """Return the document."""
    root = ElementTree.Element("testsuites", {"name": "gpuadvisor gate"})
    root.extend(_suite(each) for each in outcomes)
    total = Counter[str]()
    for suite in root:
        total.update({key: int(suite.attrib[key]) for key in ("tests", "failures", "errors")})
    root.attrib.update({key: str(count) for key, count in total.items()})
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _suite(outcome: Outcome) -> ElementTree.Element:
    said = cases(outcome)
    kinds = Counter(ELEMENTS.get(case.ending) for case in said)
    suite = ElementTree.Element("testsuite", {"name": plain(outcome.name), "tests": str(len(said))})
    suite.attrib.update({key: str(kinds[kind]) for key, kind in _COUNTED})
    if outcome.found is not None:
        suite.set("time", f"{outcome.found.wall_s:.3f}")
    suite.extend(_case(outcome, case) for case in said)
    return suite


def _case(outcome: Outcome, case: Case) -> ElementTree.Element:
    name = {"name": case.title, "classname": f"gate.{plain(outcome.name)}"}
    element = ElementTree.Element("testcase", name)
    if kind := ELEMENTS.get(case.ending):
        message = {"message": plain(case.why)}
        type_ = {} if kind == "skipped" else {"type": case.ending}
        child = ElementTree.SubElement(element, kind, {**type_, **message})
        child.text = _INVALID.sub("?", _body(outcome, case))
    return element


def _body(outcome: Outcome, case: Case) -> str:
    """Return the sentence, with why it is slower, or what a broken version printed, below it."""
    said = [f"{case.why}."]
    if outcome.found is not None and case.key in EXPLAINED:
        said += explanation_lines(outcome.found.explanation)
    for section in printed(outcome.output):
        said += [f"{section.title}:", *(getattr(block, "code", "") for block in section.blocks)]
    return "\n".join(said)
