"""What floats would save of products of doubles: arithmetic where it limits, else the bytes."""

import pytest

from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.registry import load_rules
from tests.rules.cases.fp64_by_accident import DGEMM, GEMV
from tests.rules.queued import A10G, K, queued


@pytest.mark.parametrize(("kernel", "at_least"), [(DGEMM, 80.0), (GEMV, 40.0)])
def test_a_product_with_one_vector_saves_bytes(kernel, at_least):
    rules = [each for each in load_rules() if each.name == "fp64_by_accident"]
    evidence: Evidence = queued([K(kernel, 5000)] * 9, A10G)
    (found,) = diagnose(evidence, rules).findings
    assert at_least <= found.improvement_pct.low < at_least + 10
