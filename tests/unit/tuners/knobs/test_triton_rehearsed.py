"""Blocks that round otherwise, in whole lives of a script: as good as its own where its steps are
as near to those with float32."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gpuadvisor.collectors.devices import cpu_device
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.scratch import unavailable
from gpuadvisor.domain.knobs import Level
from gpuadvisor.tuners.equivalence import TOLERANCES
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.knobs._triton.launches import Kernel
from gpuadvisor.tuners.rehearsal.comparison import missing
from gpuadvisor.tuning.rehearsal import Rehearser
from gpuadvisor.tuning.trials.trial_runner import Side, Silent

TESTS = Path(__file__).parents[3]


class Heard(Silent):
    """Keeps what lives are called."""

    def __init__(self):
        self.lives = []

    def on_life_start(self, name):
        self.lives.append(name)


@pytest.mark.slow
@pytest.mark.skipif(unavailable() is not None, reason="no private view of files here")
@pytest.mark.parametrize(
    ("values", "lacks"),
    [
        ("ROWS: 16", None),
        # Each row in two parts, of which more are lost.
        ("ROWS: 1, PARTS: 2", "off float32's"),
    ],
)
def test_steps_that_differ_are_held_against_float32(kernels, values, lacks):
    name = Kernel.of(kernels.added).name
    line = f"{name}(x: bfloat16[768, 16], ROWS: 1) -> {values}"
    environment = {"PYTHONPATH": str(TESTS / "fake_triton")}
    command = Command(sys.executable, str(TESTS / "scripts" / "triton_sums.py"))
    heard = Heard()
    side = Side(command, cpu_device(), environment=environment)
    rehearser = Rehearser(
        side, load_knobs(), TOLERANCES[Level.BALANCED], allowed_s=300.0, progress=heard
    )
    found = rehearser.rehearse({"triton_kernels": line})
    assert heard.lives[-1] == (
        "unchanged script, triton_kernels in float32, weights of the unchanged script"
    )
    if lacks is None:
        assert missing(found) is None
        assert "off those of its kernels in float32" in found.equivalence.reason
    else:
        assert lacks in missing(found)
