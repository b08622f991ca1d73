"""What is said of kernels that were counted one by one, besides findings."""

import json

from gpuadvisor.reports.diagnosis_document import diagnosis_lines
from gpuadvisor.reports.json_documents import diagnosis_json
from tests.diagnoses import DIAGNOSIS, diagnosis_report
from tests.profile_reports import report
from tests.unit.rules.facts.test_stalls import made


def test_diagnose_says_at_which_lines_and_json_has_them():
    profile = made((0, "gemm.cu:9", "long_scoreboard", 75), (0, "gemm.cu:9", "selected", 25))
    found = diagnosis_report(report(profile), DIAGNOSIS)
    said = [line.text for line in diagnosis_lines(found)]
    assert (
        "gemm waits, of 100 samples of its warps: 75.0 % at gemm.cu:9 for loads from memory or"
        " the caches." in said
    )
    told = json.loads(json.dumps(diagnosis_json(found)))["stalls"]
    assert told == [
        {
            "kernel": "gemm", "samples": 100,
            "sites": [{"line": "gemm.cu:9", "instruction": None, "reason": "long_scoreboard",
                       "samples": 75, "share": 0.75}],
        }
    ]  # fmt: skip
