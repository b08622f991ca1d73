"""Nothing is claimed from what was not measured.

From each real profile one thing at a time is taken out: a table, a column, the description of its
GPU, a category of events, a metric. What is found then was found before: less evidence may hide
what is wrong, but must not make anything up.
"""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from gpuadvisor.collectors.kineto import reader as kineto
from gpuadvisor.collectors.nsight import compute_csv, systems
from gpuadvisor.columns import MemoryProfile
from gpuadvisor.daemon.sources import window_of_recording
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.profiling.evidence import facts_of
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.ceilings import theoretical
from gpuadvisor.rules.facts.summary import Facts
from tests.rules.lacking import (
    Lacking,
    NotingEvidence,
    lacking_each,
    lacking_each_category,
    lacking_each_metric,
)
from tests.simulation import measurement

PROFILES = Path(__file__).parents[1] / "data" / "profiles"
RECORDING = Path(__file__).parents[2] / "examples" / "h100.gpr"
SMALL = (
    "workloads/healthy_matmul",
    "workloads/input_bound",
    "workloads/pageable_copy",
    "h100_bert_small",
    "hta_cpu_only",
)
MORE = (
    "workloads/fp32_no_tf32",
    "workloads/launch_bound",
    "h100_small_cnn_train",
    "h100_vit_falconsai",
    "h200_programs/slow_samples",
    "hta_rank_non_gpu",
    "mi300_bert_small",
    "hta_a100_launch_bound_rank0",
    "hta_a100_train_control",
    "v100_resnet50_workers0",
    "v100_resnet50_workers4",
)
LAUNCHING = (
    "h100_small_cnn_train",
    "hta_a100_train_control",
    "h200_programs/slow_samples",
    "v100_resnet50_workers4",
)
"""Traces of which rules blame idle time on what operators tell, and so say least without."""
COUNTED = (
    "a10g_gemm_esmm_a",
    "a10g_gemm_esmm_b",
    "h100_kernels",
    "h100_planted",
    pytest.param("h200_kernels", marks=pytest.mark.slow),
)
TRACES = [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)]


def trace(name):
    profile = MemoryProfile()
    profile.finish(kineto.read(PROFILES / f"{name}.json.gz", profile))
    return profile


def unpacked(name, folder):
    file = folder / name.removesuffix(".gz")
    file.write_bytes(gzip.decompress((PROFILES / name).read_bytes()))
    return file


def evidence_of(profile, kind=Evidence):
    """What is known of a profile by itself, with what its GPU can do by its data sheet."""
    devices = profile.header.devices
    ceilings = theoretical(devices[0]) if devices else None
    return kind(facts_of(profile, ceilings), ceilings=ceilings)


def told(evidence):
    diagnosis = diagnose(evidence)
    assert diagnosis.failed == ()
    return diagnosis.findings


def said(evidence):
    return {(each.rule, str(each.scope)) for each in told(evidence)}


def idle_pct(finding):
    """The share of the run in which the GPU waits for the host, as a finding has it."""
    host = ("gpu_idle_launching", "gpu_idle_other_host")
    return sum(each.value for each in finding.evidence if each.metric in host)


def says_less(finding, before):
    """Whether what was found before explains a finding, or said more of the same.

    Of idle time that `launch_bound` blames on launching, `host_bound` says without operators that
    the CPU is in no call into CUDA then: that is so, and no reason to promise or to try anything.
    """
    of_scope = {each.rule: each for each in before if each.scope == finding.scope}
    if finding.hidden_by in of_scope or finding.rule in of_scope:
        return True
    launching = of_scope.get("launch_bound")
    if finding.rule != "host_bound" or launching is None:
        return False
    promises = finding.improvement_pct.low > 0 or finding.knobs
    return not promises and idle_pct(finding) <= idle_pct(launching)


def invented(profile, lacking):
    before = told(evidence_of(profile))
    found = {what: told(evidence_of(less)) for what, less in lacking}
    assert found, "nothing was taken out"
    new = {
        what: [(each.rule, str(each.scope)) for each in findings if not says_less(each, before)]
        for what, findings in found.items()
    }
    return {what: findings for what, findings in new.items() if findings}


@pytest.mark.parametrize("name", TRACES)
def test_without_a_table_or_a_column(name):
    profile = trace(name)
    assert invented(profile, lacking_each(profile)) == {}


@pytest.mark.parametrize("name", LAUNCHING)
def test_without_operators(name):
    profile = trace(name)
    assert invented(profile, [("operators", Lacking(profile, "operators"))]) == {}


@pytest.mark.parametrize("name", TRACES)
def test_without_what_stands_beside_the_profile(name):
    """The GPU's ceilings, telemetry of the same time, other ranks, what the harness saw."""
    bare = evidence_of(trace(name))
    telemetry = window_of_recording(RECORDING)
    waiting = measurement([10.0] * 8, windows=(StepWindow(100, 1.0, data_wait_s=0.5),))
    whole = replace(bare, telemetry=telemetry, measured=waiting, ranks=(bare.facts, bare.facts))
    before = said(whole)
    for what in ("telemetry", "measured", "ceilings"):
        assert said(replace(whole, **{what: None})) <= before, what
    assert said(replace(whole, ranks=())) <= before
    assert said(replace(whole, facts=Facts(bare.facts.profile))) <= before


@pytest.mark.parametrize("name", TRACES)
def test_without_a_category_of_events(name, tmp_path):
    path = PROFILES / f"{name}.json.gz"
    assert invented(trace(name), lacking_each_category(path, tmp_path)) == {}


def test_of_nsight_systems(tmp_path):
    profile = MemoryProfile()
    file = unpacked("a100_cloverleaf.sqlite.gz", tmp_path)
    profile.finish(systems.read(file, profile))
    assert invented(profile, lacking_each(profile)) == {}


@pytest.mark.parametrize("name", COUNTED)
def test_without_a_metric(name, tmp_path):
    """Metrics that no rule reads of all are left: without one of them nothing is read otherwise."""
    profile = MemoryProfile()
    file = unpacked(f"{name}.raw.csv.gz", tmp_path)
    profile.finish(compute_csv.read(file, profile))
    noting = evidence_of(profile, NotingEvidence)
    told(noting)
    assert invented(profile, lacking_each_metric(profile, noting.read)) == {}
    assert invented(profile, lacking_each(profile)) == {}
