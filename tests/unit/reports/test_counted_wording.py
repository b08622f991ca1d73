"""What is said of kernels that were counted one by one, besides findings."""

import json
from dataclasses import replace

import pytest

from gpuadvisor.reports.diagnosis.counted import levels
from gpuadvisor.reports.diagnosis.document import diagnosis_lines
from gpuadvisor.reports.diagnosis.wording import outcome
from gpuadvisor.reports.json_documents import diagnosis_json
from gpuadvisor.rules.catalogue import occupancy_registers
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.registry import load_rules
from tests.diagnoses import DIAGNOSIS, diagnosis_report
from tests.profile_reports import report
from tests.rules.counted import (
    ACTIVE,
    ELAPSED,
    HEALTHY,
    QUIET,
    REQUESTS,
    UNITS_UNKNOWN,
    kernel,
)
from tests.unit.rules.facts.test_stalls import made


def test_diagnose_says_at_which_lines_and_json_has_them():
    profile = made(
        (0, "gemm.cu:9", "long_scoreboard", 60_000),
        (0, "gemm.cu:9", "selected", 25_000),
        (0, "gemm.cu:12", "wait", 8_000),
        (0, "gemm.cu:9", "barrier", 7_000),
    )
    found = diagnosis_report(report(profile), DIAGNOSIS)
    assert (
        "gemm waits, of 100,000 samples of its warps, at gemm.cu:9 60.0 % for loads from memory or"
        " the caches, 7.00 % at barriers; at gemm.cu:12 8.00 % for their own last instruction."
    ) in [line.text for line in diagnosis_lines(found)]
    told = json.loads(json.dumps(diagnosis_json(found)))["stalls"]
    assert told == [
        {
            "kernel": "gemm", "samples": 100_000,
            "sites": [
                {"line": line, "instruction": None, "reason": reason, "samples": count,
                 "share": count / 100_000}
                for line, reason, count in (
                    ("gemm.cu:9", "long_scoreboard", 60_000), ("gemm.cu:12", "wait", 8_000),
                    ("gemm.cu:9", "barrier", 7_000),
                )
            ],
        }
    ]  # fmt: skip


def test_of_few_samples_shares_are_told_as_intervals():
    profile = made((0, "a.cu:9", "long_scoreboard", 5), (0, "a.cu:9", "selected", 9))
    found = diagnosis_report(report(profile), DIAGNOSIS)
    assert (
        "gemm waits, of 14 samples of its warps (ranges are 95 % intervals), at a.cu:9"
        " 16 to 61 % for loads from memory or the caches."
    ) in [line.text for line in diagnosis_lines(found)]


@pytest.mark.parametrize(
    ("places", "told"),
    [
        (("/home/me/a.cu:9", "/home/me/a.cu:12"), "at a.cu:9 60.0 % for branches; at a.cu:12 "),
        (("C:\\me\\a.cu:9", "/opt/b.h:12"), "at a.cu:9 60.0 % for branches; at b.h:12 "),
        (("/opt/one/a.cu:9", "/opt/two/a.cu:9"), "at /opt/one/a.cu:9 60.0 % for branches; at /opt"),
        (("+0x20 BRA", "+0x40 BRA"), "at +0x20 BRA 60.0 %"),
        (("+0x20", "+0x40"), "at the instruction +0x20 60.0 %"),
    ],
)
def test_a_line_is_told_without_the_folders_of_the_machine_that_compiled_it(places, told):
    first, second = places
    profile = made((0, first, "branch_resolving", 60_000), (0, second, "branch_resolving", 40_000))
    found = diagnosis_report(report(profile), DIAGNOSIS)
    assert told in "\n".join(line.text for line in diagnosis_lines(found))


@pytest.mark.parametrize(
    ("file", "samples", "is_said"),
    [
        ("/usr/local/cuda/include/curand_kernel.h", 70_000, True),
        ("C:\\cuda\\curand_mtgp32_kernel.h", 70_000, True),
        ("/usr/local/cuda/include/curand_kernel.h", 40_000, False),
        ("/home/me/my_curand_kernel.h", 70_000, False),
        ("/home/me/pi.cu", 70_000, False),
    ],
)
def test_that_most_time_goes_to_generators_of_random_numbers_is_said(file, samples, is_said):
    profile = made(
        (0, f"{file}:326", "lg_throttle", samples - 20_000),
        (0, f"{file}:411", "wait", 20_000),
        (0, "pi.cu:9", "wait", 100_000 - samples),
    )
    said = "\n".join(line.text for line in diagnosis_lines(diagnosis_report(report(profile))))
    assert ("which makes random numbers" in said) is is_said


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
    assert "no rule can tell a gain. Of its units only compute was counted, at " in said
    assert "69.8 % of its peak" in said
    assert "The report does not tell how busy the other units are (section SpeedOfLight)" in said


def test_of_a_report_without_units_all_are_lacking():
    only = dict.fromkeys((f"{each}{ELAPSED}" for each in UNITS), None)
    (said,) = said_of(kernel(only))
    assert "was counted" not in said
    assert "The report does not tell how busy the units are (section SpeedOfLight)" in said


def test_a_short_launch_has_its_time_and_one_block_is_one():
    (said,) = said_of(kernel(grid=1, ms=0.0032))
    assert "A launch takes 3.20 µs" in said and "Its 1 block fills" in said


CHART = {
    **UNITS_UNKNOWN,
    **dict.fromkeys(HEALTHY),
    "dram__bytes_read.sum.pct_of_peak_sustained_elapsed": 20.0,
    "dram__bytes_write.sum.pct_of_peak_sustained_elapsed": 13.0,
    "lts__t_sectors_srcunit_tex_op_write.sum": 12 * 6144,
    REQUESTS.format("global_op_ld"): 6144,
    REQUESTS.format("global_op_st"): 6144,
    REQUESTS.format("local_op_st"): 0,
}
"""The memory's chart alone."""


def test_of_a_memory_chart_alone_sectors_of_requests_and_the_memory_are_told():
    (said,) = said_of(kernel(CHART))
    assert "Of its units only DRAM was counted, at 33.0 % of its peak" in said
    assert "For each request of a warp its stores touch 12.0 sectors of 32 bytes" in said
    assert "(section SpeedOfLight)" in said


def test_what_keeps_warps_out_is_named_beside_the_occupancy():
    limited = {
        f"sm__warps_active{ACTIVE}": 30.8, "sm__maximum_warps_per_active_cycle_pct": 33.3,
        "launch__occupancy_limit_registers": 4.0,
    }  # fmt: skip
    (said,) = said_of(kernel(QUIET, limited))
    assert "Its occupancy is 30.8 %, of 33.3 % that fit (by its registers)." in said


def test_the_busiest_unit_is_one_number_where_multiprocessors_are_without_warps_for_a_while():
    """Of the cycles with warps the L1 cache is the busiest, of all cycles the SMs are."""
    metrics = {
        f"sm__throughput{ELAPSED}": 53.0,
        f"gpu__compute_memory_throughput{ELAPSED}": 53.0,
        f"l1tex__throughput{ELAPSED}": None,
        f"l1tex__throughput{ACTIVE}": 61.0,
        "sm__cycles_active.avg": 0.8 * HEALTHY["gpc__cycles_elapsed.max"],
        "launch__occupancy_limit_registers": 4.0,
        "sm__maximum_warps_per_active_cycle_pct": 42.0,
        f"sm__warps_active{ACTIVE}": 40.0,
    }
    limited = kernel(QUIET, metrics)
    (said,) = said_of(limited)
    assert "busier than 53.0 % of its peak, compute first (L1 cache 48.8 %" in said
    (found,) = occupancy_registers.check(limited)
    assert [each.value for each in found.evidence if each.metric == "busiest_unit"] == [53.0]


def test_a_report_without_the_units_is_not_headed_by_what_rules_lack():
    profile = report(kernel(CHART).known_facts.profile)
    found = diagnosis_report(profile, diagnose(kernel(CHART), load_rules()), rules=load_rules())
    text = [line.text for line in diagnosis_lines(found)]
    assert text[1].endswith("1 thing to fix.") and "not side by side" in " ".join(text)
    assert "does not tell how busy the other units are (section SpeedOfLight)" in " ".join(text)
    coalesced = kernel(CHART, {"lts__t_sectors_srcunit_tex_op_write.sum": 4 * 6144})
    profile = report(coalesced.known_facts.profile)
    found = diagnosis_report(profile, diagnose(coalesced, load_rules()), rules=load_rules())
    assert "No gain can be told without how busy the units are" in outcome(found)


@pytest.mark.parametrize(("taken", "is_told"), [(7e8, True), (4e8, False), (None, False)])
def test_that_atomics_on_shared_memory_take_most_of_the_l1_cache_is_told(taken, is_told):
    """A sum by one compare-and-swap loop a block: no bank conflicts, and 87 % less with a tree
    (`c15_red2` of the public traces)."""
    counters = {
        f"l1tex__throughput{ELAPSED}": 85.0,
        "l1tex__data_pipe_lsu_wavefronts.sum": 1e9,
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum": taken,
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum": 1e5,
    }
    (said,) = said_of(kernel(counters))
    assert ("Atomics on shared memory take 70.0 % of the cycles" in said) is is_told
