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
from tests.rules.lacking import lacking_each, lacking_each_category, lacking_each_metric
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
    "hta_rank_non_gpu",
    "mi300_bert_small",
    "hta_a100_launch_bound_rank0",
    "hta_a100_train_control",
    "v100_resnet50_workers0",
    "v100_resnet50_workers4",
)
COUNTED = ("h100_planted", "a10g_gemm_esmm_a", "a10g_gemm_esmm_b")
TRACES = [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)]


def trace(name):
    profile = MemoryProfile()
    profile.finish(kineto.read(PROFILES / f"{name}.json.gz", profile))
    return profile


def unpacked(name, folder):
    file = folder / name.removesuffix(".gz")
    file.write_bytes(gzip.decompress((PROFILES / name).read_bytes()))
    return file


def evidence_of(profile):
    """What is known of a profile by itself, with what its GPU can do by its data sheet."""
    devices = profile.header.devices
    ceilings = theoretical(devices[0]) if devices else None
    return Evidence(facts_of(profile, ceilings), ceilings=ceilings)


def found(profile):
    return said(evidence_of(profile))


def said(evidence):
    diagnosis = diagnose(evidence)
    assert diagnosis.failed == ()
    return {(each.rule, str(each.scope)) for each in diagnosis.findings}


def invented(profile, lacking):
    before = found(profile)
    new = {what: found(less) - before for what, less in lacking}
    assert new, "nothing was taken out"
    return {what: findings for what, findings in new.items() if findings}


@pytest.mark.parametrize("name", TRACES)
def test_without_a_table_or_a_column(name):
    profile = trace(name)
    assert invented(profile, lacking_each(profile)) == {}


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


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTED)
def test_without_a_metric(name, tmp_path):
    profile = MemoryProfile()
    file = unpacked(f"{name}.raw.csv.gz", tmp_path)
    profile.finish(compute_csv.read(file, profile))
    assert invented(profile, lacking_each_metric(profile)) == {}
    assert invented(profile, lacking_each(profile)) == {}
