"""The daemon's loop in this process, on frames that tests give to it."""

import json
import urllib.error
import urllib.request

import pytest
from msgspec.structs import replace

from gpuadvisor.daemon.configuration import Address, Configuration, Prometheus
from gpuadvisor.daemon.daemon import Requests, Service, Setting
from gpuadvisor.daemon.systemd import Notifier
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.telemetry import frame, sample


class Source:
    """Gives what a generator yields, which looks at the daemon between its frames."""

    label = "by hand"
    has_all_events = False

    def __init__(self, frames):
        self.frames = frames

    def close(self):
        pass


@pytest.fixture
def serve(tmp_path):
    """A function that runs the daemon over frames; `life` gets its requests and is a generator."""

    def run(configuration, life, reread=None):
        asked = Requests(lambda: False)
        setting = Setting(tmp_path, Source, reread or (lambda: configuration))
        source = Source(lambda: life(asked))
        with TelemetryWriter(tmp_path) as writer:
            Service(setting, configuration, writer, Notifier({})).run(
                source, source.frames(), asked
            )

    return run


def status(url, token):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_reload_takes_the_new_token(serve, tmp_path):
    path = tmp_path / "token"
    path.write_text("old\n")
    chosen = Prometheus(Address("127.0.0.1:0"), token_file=str(path))
    seen = []

    def both():
        url = json.loads((tmp_path / "daemon.json").read_text())["endpoint"]
        return status(url, "old"), status(url, "new")

    def life(asked):
        yield frame(0, sample())
        seen.append(both())
        path.write_text("new\n")
        asked.reload = True
        yield frame(1, sample())
        seen.append(both())
        path.write_text("")
        asked.reload = True
        yield frame(2, sample())
        seen.append(both())  # an empty one is refused, and the one before stays

    serve(replace(Configuration(), prometheus=chosen), life)
    assert seen == [(200, 401), (401, 200), (401, 200)]
