"""The rules about the machine, asked while frames come: events with begin and end."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuadvisor.collectors.telemetry.recording import read_recording
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Frame, Sample
from gpuadvisor.domain.telemetry_window import window_of_frames
from gpuadvisor.rules.conditions import Conditions, Findings
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.registry import load_health_rules, rules_with_events
from tests.rules.machines import GPU, IDLE, START_S, frames_of

H100 = Path(__file__).parents[3] / "examples" / "h100.gpr"
LOCKED = {"sm_clock_mhz": 1200}


def observed(frames):
    conditions = Conditions()
    return [event for each in frames for event in conditions.observe(each)]


def findings(frames):
    return [event for event in observed(frames) if event.kind == "finding"]


def test_a_finding_begins_and_ends():
    begun, ended = findings(frames_of((60, {}), (120, LOCKED), (200, {})))
    assert begun.identity == ended.identity
    assert begun.key == "clocks_below_maximum"
    assert begun.gpu == GPU.uuid
    assert begun.ended_s is None
    assert 60 <= begun.began_s - START_S <= 120
    assert 180 + 30 <= ended.ended_s - START_S <= 180 + 110


def test_it_says_what_it_costs_and_what_to_do():
    event = findings(frames_of((60, LOCKED)))[0]
    assert event.message.startswith(
        "GPU 0 works at 1200 of 1980 MHz, held by neither power nor heat, which may cost up to"
        " 39 % of its time at work. Look for a locked clock"
    )
    assert event.severity is Severity.WARNING
    assert event.data["sm_clock_mhz"] == 1200


def test_what_lasts_shorter_is_none():
    assert findings(frames_of((60, IDLE), (2, LOCKED), (60, IDLE))) == []


def test_it_ends_with_the_work():
    ended = findings(frames_of((60, LOCKED), (200, IDLE)))[-1]
    assert ended.ended_s is not None
    assert ended.ended_s - START_S <= 60 + 110


def test_it_ends_when_nothing_is_read_any_more():
    frames = frames_of((60, LOCKED))
    frames += [Frame(START_S + at_s, {GPU.uuid: Sample({})}) for at_s in range(60, 300)]
    assert findings(frames)[-1].ended_s is not None


def test_none_begins_or_ends_while_the_driver_does_not_answer():
    silent = [Frame(START_S + at_s, problem="It does not answer.") for at_s in range(15, 300)]
    assert findings([*frames_of((15, LOCKED)), *silent]) == []
    silent = [Frame(START_S + at_s, problem="It does not answer.") for at_s in range(60, 300)]
    (begun,) = findings([*frames_of((60, LOCKED)), *silent])
    assert begun.ended_s is None


def test_it_ends_when_the_gpu_is_removed():
    gone = Frame(START_S + 60, gpus=())
    assert findings([*frames_of((60, LOCKED)), gone])[-1].ended_s == START_S + 60


def test_what_has_events_of_its_own_is_not_told_twice():
    capped = {"throttle_reasons": 0x4, "sm_clock_mhz": 1200, "memory_used_bytes": 79 * 2**30}
    events = observed(frames_of((5, {}), (120, {**capped, "pcie_width": 8, "remap_pending": 1})))
    assert {event.kind for event in events} == {
        "throttling",
        "memory_full",
        "pcie_downgrade",
        "remap_pending",
    }


def test_only_these_rules_are_asked_for_events():
    assert {rule.name for rule in load_health_rules()} - rules_with_events() == {
        "busy_but_idle_sms",
        "clocks_below_maximum",
        "shared_gpu",
    }


@pytest.mark.parametrize(
    ("values", "event_text", "summary"),
    [
        (
            {"throttle_reasons": 0x4, "sm_clock_mhz": 1400},
            "GPU 0 began to be held at 1400 of 1980 MHz by its power limit (700 W).",
            "GPU 0 ran at 1400 of 1980 MHz on average at work, and was held down for 100 % of its"
            " time at work by its power limit (700 W)",
        ),
        (
            {"memory_used_bytes": 78 * 2**30},
            "GPU 0 has 98 % of its memory in use (78.0 of 80.0 GiB).",
            "GPU 0 has 98 % of its memory in use (78.0 of 80.0 GiB) at its peak",
        ),
        (
            {"pcie_width": 8},
            "GPU 0 works over PCIe 5 x8 where 5 x16 is possible. Reseat the card, check riser and"
            " cable, and look in the BIOS for the slot's speed and bifurcation.",
            "GPU 0 works over PCIe 5 x8 where 5 x16 is possible: copies run at 50 % of the speed",
        ),
        (
            {"remap_failed": 1},
            "GPU 0 could not replace a failing memory row, as it has no spare one left. Take the"
            " GPU out of use and have it replaced.",
            "GPU 0 could not replace a failing memory row, as it has no spare one left",
        ),
    ],
)
def test_an_event_and_a_finding_of_one_condition_have_one_wording(values, event_text, summary):
    frames = frames_of((30, values))
    (event,) = observed(frames)
    (finding,) = diagnose(Evidence(telemetry=window_of_frames(frames)), load_health_rules()).shown
    assert (event.message, finding.summary) == (event_text, summary)


def with_idle_end(frames, seconds):
    """The recording, and then a GPU that is idle."""
    frames = list(frames)
    last = frames[-1]
    (uuid,) = (each for each in last.samples if each.startswith("GPU-"))
    idle = Sample({**last.samples[uuid].values, **IDLE})
    return frames + [
        replace(last, time_s=last.time_s + at_s, samples={uuid: idle}, processes=None)
        for at_s in range(1, seconds + 1)
    ]


def test_the_power_capped_phase_of_an_h100_is_found_and_ends():
    """A recording with idle, training, input-bound and power-capped phases of 11 s each."""
    frames = with_idle_end(read_recording(H100).frames(), 100)
    asked, conditions = Findings(), Conditions()
    held, events = [], []
    for each in frames:
        events += conditions.observe(each)
        list(asked.observe(each, conditions.latest))
        if each.full:
            evidence = Evidence(telemetry=asked._window.window())
            rules = {each.rule for each in diagnose(evidence, load_health_rules()).findings}
            held.append((each.time_s - frames[0].time_s, rules))
    capped = [at_s for at_s, rules in held if "power_capped" in rules]
    assert 42 <= capped[0] <= 47
    assert 110 <= capped[-1] <= 130
    assert {rule for _, rules in held for rule in rules} == {"power_capped"}
    told = [(event.kind, event.key, event.ended_s is None) for event in events]
    assert told == [("throttling", "sw_power_cap", True), ("throttling", "sw_power_cap", False)]


def test_what_is_not_told_to_this_user_is_the_reason():
    window = window_of_frames(frames_of((60, {})))
    window = replace(window, withheld="Nobody tells of processes.")
    found = diagnose(Evidence(telemetry=window), load_health_rules()).not_measured
    (reason,) = [each.why for each in found if each.rule == "shared_gpu"]
    assert reason == "Nobody tells of processes"
