"""What is said of kernels that were counted one by one, besides findings."""

import json
from dataclasses import replace

from gpuadvisor.reports.counted_wording import levels
from gpuadvisor.reports.diagnosis_document import diagnosis_lines
from gpuadvisor.reports.json_documents import diagnosis_json
from tests.diagnoses import DIAGNOSIS, diagnosis_report
from tests.profile_reports import report
from tests.rules.counted import ELAPSED, kernel
from tests.unit.rules.facts.test_stalls import made


def test_diagnose_says_at_which_lines_and_json_has_them():
    profile = made(
        (0, "gemm.cu:9", "long_scoreboard", 60),
        (0, "gemm.cu:9", "selected", 25),
        (0, "gemm.cu:12", "wait", 8),
        (0, "gemm.cu:9", "barrier", 7),
    )
    found = diagnosis_report(report(profile), DIAGNOSIS)
    assert (
        "gemm waits, of 100 samples of its warps, at gemm.cu:9 60.0 % for loads from memory or the"
        " caches, 7.00 % at barriers; at gemm.cu:12 8.00 % for their own last instruction."
    ) in [line.text for line in diagnosis_lines(found)]
    told = json.loads(json.dumps(diagnosis_json(found)))["stalls"]
    assert told == [
        {
            "kernel": "gemm", "samples": 100,
            "sites": [
                {"line": line, "instruction": None, "reason": reason, "samples": count,
                 "share": count / 100}
                for line, reason, count in (
                    ("gemm.cu:9", "long_scoreboard", 60), ("gemm.cu:12", "wait", 8),
                    ("gemm.cu:9", "barrier", 7),
                )
            ],
        }
    ]  # fmt: skip


UNITS = (
    "sm__throughput", "gpu__compute_memory_throughput", "gpu__dram_throughput", "lts__throughput",
    "l1tex__throughput",
)  # fmt: skip
THROUGHPUT = "sm__instruction_throughput.avg.pct_of_peak_sustained_elapsed"


def said_of(kernel):
    """What is said of a kernel with these counters, of which no rule found something."""
    nothing = replace(DIAGNOSIS, findings=())
    return levels(diagnosis_report(report(kernel.known_facts.profile), nothing))


def test_of_a_report_with_instructions_alone_the_other_units_are_lacking():
    only = dict.fromkeys((f"{each}{ELAPSED}" for each in UNITS), None)
    (said,) = said_of(kernel(only, {THROUGHPUT: 69.8}))
    assert "no rule can judge it by this report. Of its units only compute was counted, at " in said
    assert "69.8 % of its peak" in said
    assert "The report does not tell how busy the other units are (section SpeedOfLight)" in said


def test_of_a_report_without_units_all_are_lacking():
    only = dict.fromkeys((f"{each}{ELAPSED}" for each in UNITS), None)
    (said,) = said_of(kernel(only))
    assert "was counted" not in said
    assert "The report does not tell how busy the units are (section SpeedOfLight)" in said
