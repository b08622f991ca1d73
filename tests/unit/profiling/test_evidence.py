"""Which telemetry is a profile's."""

import pytest

from gpuadvisor.domain.profile import DeviceLimits, Header
from gpuadvisor.profiling.evidence import telemetry_of
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.telemetry import START_S, frame, h100, sample

MS = 1_000_000


@pytest.fixture
def polled(tmp_path, monkeypatch):
    """A daemon that polls each second, for a minute."""
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    every = [frame(at_s, sample(), gpus=(h100(0),) if not at_s else None) for at_s in range(60)]
    with TelemetryWriter(tmp_path / "telemetry", clock=lambda: START_S + 60) as writer:
        writer.append(every)


def profile(after_s, lasts_ms, name="NVIDIA H100 80GB HBM3"):
    begin_ns = round((START_S + after_s) * 1e9)
    return Header(
        source="kineto",
        begin_unix_ns=begin_ns,
        duration_ns=lasts_ms * MS,
        devices=(DeviceLimits(0, name),),
    )


def test_a_profile_has_the_polls_of_its_time(polled):
    window, why = telemetry_of(profile(10.5, 5000))
    assert window.gpus[0].series["power_w"].count == 5
    assert why is None


def test_a_profile_between_two_polls_is_told_so(polled):
    window, why = telemetry_of(profile(10.5, 156))
    assert window is None
    assert why == "no poll of the daemon fell into the 156 ms that were recorded"


@pytest.mark.parametrize(
    "header",
    [profile(300, 156), profile(300, 60_000), profile(10.5, 156, "NVIDIA A100-SXM4-80GB")],
    ids=["later", "long and later", "another GPU"],
)
def test_where_no_daemon_ran_there_is_no_more_to_say(polled, header):
    assert telemetry_of(header) == (None, None)
