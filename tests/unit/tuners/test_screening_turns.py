"""Whose turn it is in a live screening that has little time: what may bring most has one."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from gpuadvisor.domain.screening import ScreenedAs, ScreeningResult
from tests import simulation
from tests.live_simulation import LiveScript, screened
from tests.simulation import Switch, multiplied, space_of

COMPILES_S = 7.0
SLOW = ("compile", "graphs")


@dataclass
class Small:
    """A training step of a few milliseconds, which CUDA graphs make a fifth faster and precision
    not at all, on an H200 whose blocks differ by some percent."""

    brings: Mapping[str, float]
    step_ms: float = 2.8
    between: float = 0.05

    def screened(self, limit_s: float, seed: int) -> ScreeningResult:
        noise = simulation.gaussian(random.Random(seed), self.between, 0.0)
        model = multiplied(self.brings, self.step_ms)
        script = LiveScript(model, noise, start_s=0.0, limit_s=limit_s)
        script.compile_s = lambda settings: COMPILES_S if settings.keys() & set(SLOW) else 0.0
        knobs = [Switch("tf32"), Switch("fused")]
        knobs += [Switch("compile", excludes={"graphs"}), Switch("graphs", excludes={"compile"})]
        return screened(script, space_of(knobs), f"{seed}", costly=dict.fromkeys(SLOW, 40.0))


@pytest.mark.parametrize(("step_ms", "is_tried"), [(2.8, True), (100.0, False)])
def test_what_a_small_step_compiles_is_begun_where_a_large_ones_has_no_room(step_ms, is_tried):
    """Both have 60 s, and what compiles a large model may take 80 s."""
    found = Small({"graphs": 1.2}, step_ms, 0.002).screened(60.0, 1)
    (compiled,) = [each for each in found.values if each.knob == "compile"]
    assert (compiled.ratio is not None) == is_tried
    assert found.settings == ({"graphs": True} if is_tried else {})


def test_what_will_not_be_decided_leaves_its_time_to_what_was_not_tried():
    """Graphs had their turn in none of ten such scripts, while tf32 and fused had 16 pairs each."""
    tried = 0
    for seed in range(10):
        found = Small({"graphs": 1.25, "compile": 0.9}).screened(50.0, seed)
        states = {each.knob: each for each in found.values}
        tried += states["graphs"].ratio is not None
        assert states["tf32"].state in (ScreenedAs.UNRESOLVED, ScreenedAs.WORTHLESS)
    assert tried >= 8
