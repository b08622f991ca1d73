"""What is said of kernels that were counted one by one, besides findings."""

import json

from gpuadvisor.reports.diagnosis_document import diagnosis_lines
from gpuadvisor.reports.json_documents import diagnosis_json
from tests.diagnoses import DIAGNOSIS, diagnosis_report
from tests.profile_reports import report
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
