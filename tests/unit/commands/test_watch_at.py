"""`gpuadvisor watch --at`: what was at a time, from a store and from a recording."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from gpuadvisor.cli import main
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.telemetry import START_S, frame, sample
from tests.telemetry_store import stored

EXAMPLE = Path(__file__).parents[3] / "examples" / "h100.gpr"
HOT = Event("temperature", START_S + 3, "GPU 1 is hot.", Severity.WARNING, "GPU-1", START_S + 9)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    frames = [frame(at, sample(power_w=100.0 + at), sample()) for at in range(20)]
    stored(tmp_path / "telemetry", *frames, events=[HOT])
    return tmp_path


def at(seconds):
    return datetime.fromtimestamp(START_S + seconds).isoformat()


def test_values_and_events_of_a_moment(home, capsys):
    assert main(["watch", "--at", at(5)]) == 0
    text = capsys.readouterr().out
    assert "GPU 0  util 97 %" in text and "power 105.0 W" in text
    assert "GPU 1 is hot." in text
    assert "No processes were listed then." in text


def test_a_pipe_gets_all_of_an_event(home, capsys):
    long = replace(HOT, message="GPU 1 is hot. " * 30 + "Look at its fan.", key="long")
    frames = [frame(at, sample(), sample()) for at in range(20, 40)]
    began_s, ended_s = START_S + 25, START_S + 35
    stored(home / "telemetry", *frames, events=[replace(long, began_s=began_s, ended_s=ended_s)])
    assert main(["watch", "--at", at(30)]) == 0
    assert "Look at its fan." in capsys.readouterr().out


def test_a_moment_as_json(home, capsys):
    assert main(["watch", "--at", at(5), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["gpus"][0]["metrics"]["power_w"] == {"value": 105.0, "state": "ok"}
    assert told["gpus"][0]["metrics"]["fan_pct"]["value"] is None
    assert (told["time_s"], told["row_s"], told["processes"]) == (START_S + 5, 0, None)
    assert [event["kind"] for event in told["events"]] == ["temperature"]


def test_a_moment_without_any_reading(home, capsys):
    assert main(["watch", "--at", at(-3600)]) == 1
    assert "Nothing was measured then." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "words"),
    [("tomorrow", "or a moment such as"), ("2999-01-01", "is after the end: choose a time before")],
)
def test_what_is_no_time_before_is_a_sentence(home, capsys, given, words):
    assert main(["watch", "--at", given]) == 2
    assert words in capsys.readouterr().err


def test_without_a_store_it_says_what_begins_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    assert main(["watch", "--at", "1h"]) == 1
    assert "`gpuadvisor daemon start` begins to collect it" in capsys.readouterr().err


def test_a_moment_of_a_recording_is_before_its_end(capsys):
    assert main(["watch", "--replay", str(EXAMPLE), "--at", "30s"]) == 0
    text = capsys.readouterr().out
    assert "30 s ago" in text
    assert "record_example.py --work" in text


def test_only_a_daemon_that_runs_says_that_an_event_lasts(home, capsys):
    folder = home / "telemetry"
    stored(folder, frame(20, sample(), sample()), events=[replace(HOT, key="open", ended_s=None)])
    assert main(["watch", "--at", at(5)]) == 0
    assert "lasts?  GPU 1 is hot." in capsys.readouterr().out
    with TelemetryWriter(folder):
        assert main(["watch", "--at", at(5)]) == 0
    assert " lasts  GPU 1 is hot." in capsys.readouterr().out
