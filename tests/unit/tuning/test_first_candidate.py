"""What the tuner tries first after a diagnosis of real traces: the cure that is known of them."""

from pathlib import Path

import pytest

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Level, LoaderFacts, ScriptFacts
from gpuadvisor.domain.study import Objective
from gpuadvisor.profiling.evidence import facts_of
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.ceilings import theoretical
from gpuadvisor.tuners.knob_space import Selection, select_knobs
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.expectations import expected

PROFILES = Path(__file__).parents[2] / "data" / "profiles"
GPU = Device("cuda", 0, "NVIDIA H100 80GB HBM3", "GPU-0", 80 << 30, (9, 0), cores=16)
TRAINING = ScriptFacts(
    device="cuda",
    loaders=(LoaderFacts(32, 0, False, False, None),),
    optimizers=("SGD",),
    roots=("ResNet",),
    has_convolution=True,
)


def first_candidates(name):
    profile = read_profile(PROFILES / name)
    [device, *_] = profile.header.devices
    ceilings = theoretical(device)
    evidence = Evidence(facts_of(profile, ceilings), ceilings=ceilings)
    first = [knob for each in expected(diagnose(evidence)) for knob in each.knobs]
    selection = Selection(Level.BALANCED, Objective.THROUGHPUT, frozenset(), frozenset())
    chosen = select_knobs(load_knobs(), selection, GPU, TRAINING, first)
    return [parameter.name for parameter in chosen.space.parameters]


@pytest.mark.parametrize(
    ("trace", "cures"),
    [
        ("v100_resnet50_workers0.json.gz", {"dataloader_workers"}),
        ("workloads/input_bound.json.gz", {"dataloader_workers"}),
        ("workloads/launch_bound.json.gz", {"compile_cudagraphs", "compile"}),
        ("workloads/fp32_no_tf32.json.gz", {"tf32", "bf16_autocast"}),
        ("workloads/pageable_copy.json.gz", {"pin_memory"}),
    ],
)
def test_the_cure_comes_first(trace, cures):
    assert first_candidates(trace)[0] in cures
