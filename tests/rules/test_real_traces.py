"""What the rules about kernels and memory say of real traces; each was judged by hand.

Not listed: `memory_room`, which only says how much was free.
"""

from functools import cache
from pathlib import Path

import pytest

from gpuadvisor.domain.severity import Severity
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.ceilings import theoretical
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.registry import load_rules

PROFILES = Path(__file__).parent.parent / "data" / "profiles"
RULES = (
    "allocator_fragmentation", "batch_too_small", "fp64_by_accident", "layout_conversion",
    "memory_growth", "memory_nearly_full", "misaligned_gemm", "mixed_precision_off",
    "small_grid_in_trace", "tensor_cores_unused", "tf32_off", "trace_occupancy",
    "unfused_attention", "unfused_elementwise", "unfused_optimizer",
)  # fmt: skip

FOUND = {
    # Layers of 4096 in float32: nothing else takes time.
    "workloads/fp32_no_tf32": {"tf32_off": "critical"},
    "workloads/healthy_matmul": {},
    # Limited by what is no kernel: products in float32 are there, and not worth much.
    "workloads/input_bound": {"layout_conversion": "info", "mixed_precision_off": "info"},
    "workloads/launch_bound": {
        "batch_too_small": "info", "tf32_off": "info", "unfused_elementwise": "info",
    },
    "workloads/pageable_copy": {"tf32_off": "notice"},
    # A vocabulary of 30,522: the last product runs in an unaligned kernel.
    # Each layer norm follows an addition, which is worth little where the host is the limit.
    "h100_bert_small": {"misaligned_gemm": "info", "unfused_elementwise": "info"},
    # Mostly waits for its data; its convolutions are in NCHW, its layers in float32.
    # Between two convolutions it normalizes and activates, each through memory.
    "h100_small_cnn_train": {
        "layout_conversion": "notice", "tf32_off": "info", "unfused_elementwise": "notice",
    },
    "mi300_bert_small": {"unfused_elementwise": "info"},
    "hta_cpu_only": {},
    "hta_rank_non_gpu": {},
    # Some sgemm kernels, but TF32 is on: the library chose them for sizes such as 30 x 647.
    "hta_a100_train_control": {"mixed_precision_off": "notice", "unfused_elementwise": "notice"},
    # 3 % of its kernel time are elementwise kernels of doubles, which is nothing of the run.
    "hta_a100_launch_bound_rank0": {"mixed_precision_off": "notice", "fp64_by_accident": "info"},
    # float32 convolutions on Volta, whose tensor cores take 16 bits, and SGD in single operations.
    # Without workers the GPU waits for data most of the time; with them it is the limit.
    # A third of its kernel time is batch normalization, activation and addition.
    "v100_resnet50_workers0": {
        "tensor_cores_unused": "notice", "unfused_optimizer": "notice",
        "unfused_elementwise": "notice",
    },
    "v100_resnet50_workers4": {
        "tensor_cores_unused": "critical", "unfused_optimizer": "notice",
        "unfused_elementwise": "warning",
    },
}  # fmt: skip


@cache
def diagnosis(name):
    profile = read_profile(PROFILES / f"{name}.json.gz")
    devices = profile.header.devices
    ceilings = theoretical(devices[0]) if devices else None
    known = {} if ceilings is None else ceilings.by_quantity
    facts = Facts(profile, {quantity: peak.value for quantity, peak in known.items()})
    rules = [rule for rule in load_rules() if rule.name in RULES]
    return diagnose(Evidence(facts, ceilings=ceilings), rules)


def test_all_of_these_rules_exist():
    assert set(RULES) <= {rule.name for rule in load_rules()}


@pytest.mark.parametrize("name", FOUND)
def test_a_trace_is_diagnosed_as_by_hand(name):
    found = diagnosis(name)
    assert found.failed == ()
    severities = {
        each.rule: str(each.severity) for each in found.findings if each.rule != "memory_room"
    }
    expected = FOUND[name]
    assert severities.keys() == expected.keys()
    for rule, severity in expected.items():
        ranks = (Severity(severity).rank, Severity(severities[rule]).rank)
        assert abs(ranks[0] - ranks[1]) <= 1, (rule, severities[rule])


def test_the_gain_of_tensor_cores_is_in_its_range():
    first = diagnosis("workloads/fp32_no_tf32").findings[0]
    assert first.rule == "tf32_off"
    measured = 100 * (1 - 11.60465 / 63.60061)  # workloads.json
    assert first.improvement_pct.low <= measured <= first.improvement_pct.high
    assert first.improvement_pct.width <= 30


@pytest.mark.parametrize("name", ["healthy_matmul", "input_bound", "launch_bound", "pageable_copy"])
def test_no_kernel_is_blamed_where_none_is_the_limit(name):
    shown = diagnosis(f"workloads/{name}").shown
    assert all(each.severity.rank <= Severity.NOTICE.rank for each in shown)
