"""The digest of jobs: when it is sent, and what a webhook gets."""

import json
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from gpuadvisor.daemon.configuration import Jobs
from gpuadvisor.daemon.configured_values import DayOrMore, Webhook
from gpuadvisor.daemon.digest import SENT, Digests
from tests.simulated_jobs import BEGIN_S
from tests.telemetry import frame, sample
from tests.telemetry_store import stored

WEEK_S = 7 * 86400.0
NOW_S = BEGIN_S + WEEK_S


@pytest.fixture
def webhook():
    """A server, and the bodies that it got; it answers with the status that stands in `say`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(server.say)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.got, server.say = [], 200
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def digests(tmp_path, monkeypatch, webhook):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    folder = tmp_path / "telemetry"
    stored(folder, frame(0.0, sample()))
    address = Webhook(f"http://127.0.0.1:{webhook.server_port}/")
    return Digests(folder, Jobs(digest=address, digest_every_s=DayOrMore(WEEK_S)))


def sent_s(digests):
    return (digests._folder / SENT).stat().st_mtime


def test_a_digest_is_sent_once_a_week(digests, webhook):
    digests.tend(NOW_S)  # the first week begins
    digests.tend(NOW_S + WEEK_S - 60)
    digests.join()
    assert webhook.got == []
    digests.tend(NOW_S + WEEK_S)
    digests.join()
    digests.tend(NOW_S + WEEK_S + 60)
    digests.join()
    (body,) = webhook.got
    assert (body["version"], body["kind"]) == (1, "digest")
    assert body["text"].startswith("### `GPUs of ")
    assert sent_s(digests) == NOW_S + WEEK_S


def test_one_that_was_sent_while_the_clock_was_ahead_does_not_hold_back_those_to_come(
    digests, webhook
):
    sent = digests._folder / SENT
    sent.touch()
    os.utime(sent, (NOW_S + 52 * WEEK_S, NOW_S + 52 * WEEK_S))
    digests.tend(NOW_S)
    digests.tend(NOW_S + WEEK_S - 60)
    digests.join()
    assert webhook.got == []
    digests.tend(NOW_S + WEEK_S)
    digests.join()
    assert len(webhook.got) == 1 and sent_s(digests) == NOW_S + WEEK_S


def test_one_that_fails_is_not_said_to_be_sent(digests, webhook, caplog):
    webhook.say = 500
    os.utime((digests._folder / SENT).touch() or digests._folder / SENT, (NOW_S, NOW_S))
    digests.tend(NOW_S + WEEK_S)
    digests.join()
    assert "the digest could not be sent (the webhook answered 500" in caplog.text
    assert sent_s(digests) == NOW_S


def test_without_a_webhook_nothing_is_made(digests):
    digests.chosen = Jobs()
    digests.tend(NOW_S)
    assert not (digests._folder / SENT).exists()
