"""The daemon's loop in this process, on frames that tests give to it."""

import grp
import json
import os
import time
import urllib.error
import urllib.request

import pytest
from msgspec.structs import replace

from gpuadvisor.daemon import daemon
from gpuadvisor.daemon.alerts import is_end_seen
from gpuadvisor.daemon.configuration import Configuration, Prometheus
from gpuadvisor.daemon.configured_values import Address, Group
from gpuadvisor.daemon.daemon import Requests, Service, Setting
from gpuadvisor.daemon.systemd import Notifier
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.telemetry import GIB, START_S, frame, sample


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

    def run(configuration, life, reread=None, folder=tmp_path):
        asked = Requests(lambda: False)
        setting = Setting(folder, Source, reread or (lambda: configuration))
        source = Source(lambda: life(asked))
        with TelemetryWriter(folder) as writer:
            Service(setting, configuration, writer, Notifier({})).run(
                source, source.frames(), asked
            )

    return run


def status(url, token):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to any group")
def test_a_reload_lets_another_group_read(serve, tmp_path):
    other = next(each for each in grp.getgrall() if each.gr_gid != os.getegid())
    folder = tmp_path / "home" / "telemetry"
    chosen = [Configuration(), replace(Configuration(), group=Group(other.gr_name))]
    daemon.share(folder, chosen[0])
    seen = []

    def modes():
        paths = (folder.parent, folder, folder / "index.db", folder / "daemon.sock")
        found = [path.stat() for path in paths]
        return [(each.st_gid, oct(each.st_mode & 0o7777)) for each in found]

    def life(asked):
        yield frame(0, sample())
        seen.append(modes())
        asked.reload = True
        yield frame(1, sample())
        seen.append(modes())

    serve(chosen[0], life, lambda: chosen[1], folder)
    own, number = os.getegid(), other.gr_gid
    assert seen[0] == [(own, "0o710"), (own, "0o750"), (own, "0o640"), (own, "0o660")]
    assert seen[1] == [(number, "0o710"), (number, "0o2750"), (number, "0o640"), (number, "0o660")]


def test_links_in_the_store_give_away_no_other_file(tmp_path):
    secret, folder = tmp_path / "secret", tmp_path / "home" / "telemetry"
    secret.touch(0o600)
    folder.mkdir(parents=True)
    (folder / "index.db").symlink_to(secret)
    (folder / "samples-20231114.db").hardlink_to(secret)
    daemon.share(folder, Configuration())
    assert secret.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to any group")
def test_a_folder_of_another_group_is_not_given_away(tmp_path, caplog):
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o770)
    os.chown(home, -1, 4399)
    daemon.share(home / "telemetry", Configuration())
    assert f"cannot be let into {home / 'telemetry'}" in caplog.text
    assert (home.stat().st_gid, home.stat().st_mode & 0o777) == (4399, 0o770)


def test_what_lasted_when_a_daemon_was_stopped_is_left_to_the_next_one(serve, tmp_path):
    """Else a pager that was told of its begin is never told of its end."""
    now_s = time.time() - START_S
    full = sample(memory_used_bytes=79 * GIB)

    def life(asked):
        yield frame(now_s - 3, full)
        yield frame(now_s - 2, full)

    serve(Configuration(), life)
    (left,) = daemon.earlier(tmp_path).left
    assert (left.kind, left.ended_s) == ("memory_full", START_S + now_s - 2)
    assert not is_end_seen(left, left.ended_s)
