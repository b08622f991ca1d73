"""Rules about the machine: what they cost, what they stand on, and that they need no numpy."""

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from gpuadvisor.daemon.sources import window_of_recording
from gpuadvisor.domain.finding import Category
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.registry import load_health_rules
from tests.rules.machines import AT_WORK, GPU, OTHER, machine, process, profiled, run_of

H100 = Path(__file__).parents[2] / "examples" / "h100.gpr"
RULES = {rule.name: rule for rule in load_health_rules()}


def found(evidence):
    return {
        (finding.rule, finding.scope): finding
        for finding in diagnose(evidence, RULES.values()).findings
    }


def without(evidence, metric):
    """As if a metric had not been read, of all GPUs."""
    gpus = tuple(
        replace(
            gpu,
            **{
                name: {
                    key: value
                    for key, value in getattr(gpu, name).items()
                    if key.partition("/")[0] != metric
                }
                for name in ("series", "shares", "busy", "busy_shares")
            },
        )
        for gpu in evidence.telemetry.gpus
    )
    return replace(evidence, telemetry=replace(evidence.telemetry, gpus=gpus))


def all_cases():
    for name in RULES:
        module = import_module(f"tests.rules.cases.{name}")
        for title, case in {**module.FIRES, **module.SILENT}.items():
            yield pytest.param(case, id=f"{name}: {title}")
    yield pytest.param(lambda: Evidence(telemetry=window_of_recording(H100)), id="a recording")


@pytest.mark.parametrize("case", list(all_cases()))
def test_what_is_missing_makes_no_finding(case):
    evidence = case()
    known = found(evidence).keys()
    for metric in AT_WORK:
        assert found(without(evidence, metric)).keys() <= known, metric
    silenced = [
        replace(evidence, telemetry=replace(evidence.telemetry, events=())),
        replace(
            evidence,
            telemetry=replace(
                evidence.telemetry,
                gpus=tuple(replace(gpu, processes=None) for gpu in evidence.telemetry.gpus),
            ),
        ),
        replace(evidence, telemetry=None),
    ]
    for each in silenced:
        assert found(each).keys() <= known


def test_a_machine_that_is_well_gets_no_finding():
    assert found(machine((60, {}))) == {}


def test_they_are_about_health_or_memory():
    assert {rule.rule.category for rule in RULES.values()} == {
        Category.HEALTH,
        Category.MEMORY_CAPACITY,
    }


def test_a_cap_costs_what_the_clock_lost_of_the_time_at_work():
    capped = {"throttle_reasons": 0x4, "sm_clock_mhz": 1485, "tensor_active_pct": 80.0}
    (finding,) = found(machine((60, capped))).values()
    assert finding.improvement_pct.high == pytest.approx(25.0)
    assert finding.improvement_pct.low == pytest.approx(20.0)
    assert finding.severity is Severity.WARNING


def test_a_cap_costs_little_where_memory_is_the_limit():
    capped = {"throttle_reasons": 0x4, "sm_clock_mhz": 1485, "dram_active_pct": 90.0}
    (finding,) = found(machine((60, capped))).values()
    assert finding.improvement_pct.high == pytest.approx(2.5)


def test_of_a_profile_it_costs_a_share_of_the_kernels_time():
    capped = {"throttle_reasons": 0x4, "sm_clock_mhz": 1485, "tensor_active_pct": None}
    (finding,) = found(profiled(machine((10, capped)), kernel_ms=5.0)).values()
    assert finding.improvement_pct.high == pytest.approx(12.5)
    assert finding.improvement_pct.low == 0
    assert finding.saving_ms == pytest.approx(0.625)


def test_a_low_link_costs_a_share_of_exposed_copies():
    (finding,) = found(profiled(machine((10, {"pcie_width": 4})))).values()
    assert finding.improvement_pct.high == pytest.approx(7.5)
    assert finding.severity is Severity.WARNING


def test_what_the_hardware_does_hides_what_follows_from_it():
    slow = {"throttle_reasons": 0x8 | 0x4, "sm_clock_mhz": 990}
    findings = {rule: each.hidden_by for (rule, _), each in found(machine((60, slow))).items()}
    assert findings == {"hardware_slowdown": None, "power_capped": "hardware_slowdown"}


def two_gpus(**second):
    """A machine with two GPUs of one name, of which the second is capped."""
    one, two = (machine((60, {})), machine((60, {"throttle_reasons": 0x4, "sm_clock_mhz": 1400})))
    gpus = (*one.telemetry.gpus, replace(two.telemetry.gpus[0], gpu=OTHER, **second))
    return replace(one.telemetry, gpus=gpus)


def test_of_several_gpus_that_could_be_the_runs_none_is_blamed():
    assert found(Evidence(telemetry=two_gpus(), facts=run_of().facts)) == {}


def test_the_process_tells_which_gpu_is_the_runs():
    mine = two_gpus(processes=(replace(process(100), gpu=OTHER.uuid),))
    ((rule, scope),) = found(Evidence(telemetry=mine, facts=run_of(pid=100).facts))
    assert (rule, str(scope)) == ("power_capped", "GPU 1")


def test_without_a_profile_all_gpus_are_looked_at():
    ((_, scope),) = found(Evidence(telemetry=two_gpus()))
    assert str(scope) == "GPU 1"
    assert GPU.index == 0


def test_the_daemon_loads_them_without_numpy():
    probe = (
        "from gpuadvisor.rules.engine import diagnose; from gpuadvisor.rules.evidence import"
        " Evidence; from gpuadvisor.rules.registry import load_health_rules;"
        " diagnose(Evidence(), load_health_rules()); import sys;"
        " print(*{'numpy', 'pandas', 'sqlalchemy', 'msgspec'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
