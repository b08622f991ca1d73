"""A daemon of another machine as a source: what it tells, and whatever else may answer."""

import gzip
import json
import socket
import socketserver
import ssl
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest

from gpuadvisor.collectors.telemetry.encoding import encode
from gpuadvisor.daemon.endpoint import client
from gpuadvisor.daemon.endpoint import remote as module
from gpuadvisor.daemon.endpoint.hosts import Host
from gpuadvisor.daemon.endpoint.remote import Remote
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, GpuProcess, State
from gpuadvisor.tui.watch.state import WatchState
from tests.endpoint import Endpoint
from tests.telemetry import START_S, frame, sample

XID = Event("xid", START_S, "Xid 31.", Severity.ERROR, "GPU-0", START_S, "31", {"xid": 31})
PYTHON = GpuProcess(
    "GPU-0", 71, "compute", 5 << 30, "python", "ada", "python secret.py", "4f2a", by_gpuadvisor=True
)


@pytest.fixture
def endpoint(monkeypatch):
    """A function that opens endpoints."""
    made = []
    monkeypatch.setattr(module, "SILENT_S", 1e6)  # however long a test takes, no frame is old

    def start(name="node7", **chosen):
        made.append(Endpoint(name, **chosen))
        return made[-1]

    yield start
    for each in made:
        each.close()


@contextmanager
def answering(*pieces, hold_s=0.0, pause_s=0.0, asked=None):
    """A server that sends these pieces, or what they return, whatever it is asked, and then holds
    on; its Host."""
    ended = threading.Event()
    asked = [] if asked is None else asked

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            asked.append(self.request.recv(65536))
            try:
                for piece in pieces:
                    self.request.sendall(piece() if callable(piece) else piece)
                    ended.wait(pause_s)
                ended.wait(hold_s)
            except OSError:  # the client has gone
                return

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield Host("node7", "127.0.0.1", server.server_address[1])
        ended.set()
        server.shutdown()


def http(body, status="200 OK", **headers):
    lines = [f"HTTP/1.0 {status}", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def told(*frames, now_s=None, **changes):
    """The body of an answer, as a daemon makes it."""
    header = {"version": 1, "gpuadvisor": "9.9", "host": "node7", **changes}
    header["now_s"] = time.time() if now_s is None else now_s
    return b"\n".join([json.dumps(header).encode(), *map(encode, frames)]) + b"\n"


def now(*samples, at_s=0.0, **more):
    return replace(frame(0, *samples, **more), time_s=time.time() + at_s)


def values(remote, frames, metric="power_w"):
    """How a metric of the first GPU is shown after these frames."""
    state = WatchState("daemon", host=remote.host.name, has_all_events=True, clock=lambda: 0.0)
    for each in frames:
        state.update(each)
    return state.reading("GPU-0", metric)


# -- what a daemon tells ---------------------------------------------------------------------------


def test_frames_once_and_then_only_those_that_are_new(endpoint):
    there = endpoint()
    first = [there.take(frame(at_s, sample(power_w=at_s))) for at_s in (-3, -2, -1)]
    remote = Remote(there.host())
    opening, *read = remote.ask()
    assert (opening.gpus, opening.samples) == (first[0].gpus, {})
    assert read == first
    assert remote.ask() == []
    last = there.take(frame(0, sample(power_w=0)))
    assert remote.ask() == [last]
    assert (remote.problem, remote.withheld is None) == (None, False)


def test_two_minutes_are_kept(endpoint):
    there = endpoint()
    for at_s in range(-200, 1, 10):
        there.take(frame(at_s, sample()))
    _, *read = Remote(there.host()).ask()
    assert 12 <= len(read) <= 13


def test_what_lasts_is_told_however_long_ago_it_began(endpoint):
    there = endpoint()
    full = sample(memory_used_bytes=80 << 30)
    for at_s in range(-300, 1, 20):
        there.take(frame(at_s, full))
    told_of = [e for each in Remote(there.host()).ask() for e in each.events]
    assert {e.ended_s for e in told_of if e.kind == "memory_full"} == {None}


def test_processes_are_told_where_the_configuration_has_them_but_never_their_commands(endpoint):
    there = endpoint(processes=True)
    there.take(replace(frame(0, sample()), processes=(PYTHON,)))
    remote = Remote(there.host())
    processes = remote.ask()[-1].processes
    assert processes == (replace(PYTHON, command=None, by_gpuadvisor=None),)
    assert remote.withheld is None


def test_without_that_no_answer_names_a_process(endpoint):
    there = endpoint()
    shared = Event("finding", START_S, "ann's python (71)", key="shared_gpu", data={"pids": "71"})
    made = replace(frame(0, sample()), processes=(PYTHON,), time_s=time.time())
    there.exporter.take(made, [shared, replace(XID, began_s=made.time_s, ended_s=made.time_s)])
    remote = Remote(there.host())
    last = remote.ask()[-1]
    assert last.processes is None
    assert [e.message for e in last.events] == [
        "Processes that do not belong together use this GPU.", XID.message
    ]  # fmt: skip
    assert "python" not in repr(last)
    assert "does not tell its processes: `processes = true` in [prometheus]" in remote.withheld


def test_a_daemon_that_begins_anew_is_followed(endpoint):
    there = endpoint()
    there.take(frame(-1, sample(power_w=1)))
    remote = Remote(there.host())
    remote.ask()
    remote.host = there.restart()
    last = there.take(frame(0, sample(power_w=2)))
    assert remote.ask()[-1] == last


def test_a_daemon_whose_clock_is_set_back_is_followed(endpoint):
    there = endpoint()
    there.take(frame(3000, sample()))
    remote = Remote(there.host())
    remote.ask()
    there.take(frame(-1, sample(power_w=5)))
    assert values(remote, remote.ask()).value == 5
    last = there.take(frame(0, sample(power_w=6)))
    assert remote.ask() == [last]


@pytest.mark.parametrize("word", ["since=nan", "since=x", "last=-1", "since=1e400", "a=%ff"])
def test_a_question_that_is_odd_gets_an_answer(endpoint, word):
    there = endpoint()
    there.take(frame(0, sample()))
    assert client.fetched(there.host(), f"/watch?{word}").startswith(b'{"version":1')


# -- what is said of a machine that does not answer as it should -----------------------------------


def test_nothing_listens():
    with socket.socket() as taken:  # so that no other program listens there either
        taken.bind(("127.0.0.1", 0))
        remote = Remote(Host("node7", "127.0.0.1", taken.getsockname()[1]))
        (only,) = remote.ask()
    assert only.problem == remote.problem
    assert remote.problem.startswith(f"Nothing listens on {remote.host.place}: `gpuadvisor daemon")
    assert (only.gpus, only.samples, remote.silent_s, remote.is_heard) == (None, {}, None, False)


def test_tokens(endpoint, tmp_path):
    (tmp_path / "theirs").write_text("right")
    (tmp_path / "ours").write_text("wrong")
    there = endpoint(token_file=str(tmp_path / "theirs"))
    there.take(frame(0, sample()))
    nobody = Remote(there.host())
    nobody.ask()
    assert nobody.problem.startswith("node7 asks for a token: name its file with --token-file")
    remote = Remote(there.host(token_file=str(tmp_path / "ours")))
    remote.ask()
    assert remote.problem.startswith(f"node7 refuses the token in {tmp_path}/ours: it must be")
    assert "wrong" not in remote.problem
    (tmp_path / "ours").write_text("right")  # is read anew
    remote.ask()
    assert remote.problem is None
    (tmp_path / "ours").unlink()
    remote.ask()
    assert "cannot be read (No such file or directory)" in remote.problem


GARBAGE = "is no daemon of gpuadvisor"
FRAME = encode(frame(0, sample()))
WRONG = {
    "an old daemon": (http(b"no", "404 Not Found", Server="gpuadvisor"), "too old to be watched"),
    "another server": (http(b"no", "404 Not Found", Server="nginx"), f"{GARBAGE} (HTTP stat"),
    "a newer daemon": (http(told(version=2, gpuadvisor="3\x1b[1m")), "runs gpuadvisor 3?[1m, wh"),
    "busy": (http(b"", "503 Service Unavailable"), "serves as many clients as it can"),
    "elsewhere": (http(b"", "301 Moved", Location="https://x/"), "sends one to 'https://x/'"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n", GARBAGE),
    "noise": (bytes(range(256)) * 8, GARBAGE),
    "nothing": (b"", "cannot be reached (Remote end closed connection without response)"),
    "a page": (http(b"<html>hello</html>"), GARBAGE),
    "an empty body": (http(b""), GARBAGE),
    "a list": (http(b"[]\n"), GARBAGE),
    "deep": (http(b"[" * 100_000), GARBAGE),
    "a header alone": (http(told()), "has no values so far"),
    "a bad line": (http(told() + b'{"t": "noon"}\n'), "a line that is no frame"),
    "no date": (http(told() + FRAME.replace(b'"t":17', b'"t":99999999917')), "beyond all dates"),
    "no time": (http(told(now_s=-1e300)), "beyond all dates"),
    "cut off": (http(told() + FRAME, Content_Length="99999"), "was cut off"),
    "a broken gzip": (http(b"\x1f\x8bno", Content_Encoding="gzip"), "cannot be unpacked"),
    "half a gzip": (http(gzip.compress(told())[:60], Content_Encoding="gzip"), "was cut off"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_else_may_answer(name):
    answer, said = WRONG[name]
    with answering(answer) as host:
        remote = Remote(host)
        (only,) = remote.ask()
    assert said in remote.problem
    assert remote.problem.isprintable()
    assert (only.problem, only.samples) == (remote.problem, {})


def test_an_answer_without_end_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(client, "MAX_BYTES", 1 << 20)
    bomb = gzip.compress(b" " * (8 << 20))
    with answering(http(bomb, Content_Encoding="gzip")) as host:
        remote = Remote(host)
        remote.ask()
    assert "an answer without end" in remote.problem


@pytest.mark.parametrize(
    "pieces",
    [(), (b"HTTP/1.0 200 OK\r\n",), (http(told()[:20]),), (http(b""), *[b" "] * 200)],
    ids=["says nothing", "hangs in the header", "hangs in the body", "drips"],
)
def test_a_machine_that_hangs_is_given_up(pieces, monkeypatch):
    monkeypatch.setattr(client, "ANSWER_S", 0.2)
    with answering(*pieces, hold_s=30.0, pause_s=0.05) as host:
        remote = Remote(host)
        remote.ask()
    assert remote.problem == f"{host.place} has not answered within 0 s."


def test_a_slow_link_is_asked_for_less(monkeypatch):
    monkeypatch.setattr(client, "ANSWER_S", 0.2)
    asked = []
    with answering(hold_s=30.0) as host:
        remote = Remote(host)
        remote.ask()
    monkeypatch.undo()
    with answering(http(told()), asked=asked) as remote.host:
        remote.ask()
    assert asked[0].split()[1] == b"/watch?last=5"


def test_texts_cannot_command_a_terminal():
    evil = Event("xid", START_S, "\x1b]0;owned\x07 \x9b31m", data={"\x1b": "\u202e"})

    def answer():
        made = now(sample(), events=(evil,))
        made = replace(made, gpus=(replace(made.gpus[0], name="H100\x1b[2J\x7f"),))
        return http(told(made, withheld="\x1b[5m"))

    with answering(answer) as host:
        remote = Remote(host)
        (read,) = remote.ask()
    assert read.gpus[0].name == "H100?[2J?"
    assert read.events[0].message == "?]0;owned? ?31m"
    assert remote.withheld == "?[5m"


# -- a machine that has gone -----------------------------------------------------------------------


def test_nothing_of_a_machine_that_has_gone_is_current(endpoint):
    there = endpoint()
    there.take(frame(-1, sample(power_w=300.0, sm_clock_max_mhz=1980)))
    ticks = count(step=0.0)
    remote = Remote(there.host(), clock=lambda: next(ticks))
    seen = remote.ask()
    assert values(remote, seen).is_ok
    there.close()
    seen += remote.ask()
    for metric in ("power_w", "sm_clock_max_mhz"):  # the latter is read once a minute
        reading = values(remote, seen, metric)
        assert (reading.state, reading.reason) == (State.STALE, "node7 does not answer")
    assert values(remote, seen).value == 300.0
    remote.host = there.restart()
    there.take(frame(0, sample(power_w=200.0)))
    seen += remote.ask()
    assert (values(remote, seen).value, values(remote, seen).is_ok) == (200.0, True)
    assert remote.problem is None


def test_how_long_ago_it_was_heard(endpoint):
    there = endpoint()
    there.take(frame(0, sample()))
    time_s = [100.0]
    remote = Remote(there.host(), clock=lambda: time_s[0])
    remote.ask()
    there.close()
    time_s[0] += 75.0
    (gone,) = remote.ask()
    assert remote.silent_s == 75.0
    assert gone.time_s == pytest.approx(time.time() + 75.0, abs=30.0)  # goes on with its own clock


def test_a_daemon_that_answers_and_reads_nothing():
    old = now(sample(power_w=300.0), at_s=-60.0)
    with answering(http(told(old))) as host:
        remote = Remote(host)
        seen = remote.ask()
    assert remote.is_heard
    assert remote.problem.startswith("The daemon of node7 has read nothing for 1 min")
    assert values(remote, seen).state is State.STALE


@pytest.mark.parametrize(
    ("ahead_s", "said"),
    [
        (0.0, None),
        (90.0, "The clock of node7 is 1 min 30 s ahead of this machine's; times here are its own."),
        (
            -9000.0,
            "The clock of node7 is 2 h 30 min behind this machine's; times here are its own.",
        ),
    ],
)
def test_a_clock_that_differs(ahead_s, said):
    def answer():
        made = now(sample(power_w=300.0), at_s=ahead_s)
        return http(told(made, now_s=time.time() + ahead_s))

    with answering(answer) as host:
        remote = Remote(host)
        seen = remote.ask()
    assert values(remote, seen).is_ok
    assert remote.remark is None if said is None else said[:25] in remote.remark


def test_close_ends_the_frames(endpoint):
    there = endpoint()
    there.take(frame(0, sample()))
    remote = Remote(there.host())
    frames = remote.frames()
    next(frames)
    remote.close()
    assert len(list(frames)) <= 1


# -- TLS -------------------------------------------------------------------------------------------


def test_plain_http_where_tls_was_asked_for(endpoint):
    there = endpoint()
    remote = Remote(there.host(is_tls=True))
    remote.ask()
    assert f"without TLS it is http://127.0.0.1:{there.port}" in remote.problem


def test_tls(tmp_path):
    import shutil
    import subprocess

    if shutil.which("openssl") is None:
        pytest.skip("a certificate is made with openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with answering(http(told(now(sample())))) as plain:
        pass

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            self.request.recv(65536)
            self.request.sendall(http(told(now(sample()))))
            self.request.unwrap()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

        def get_request(self):
            made, address = super().get_request()
            return context.wrap_socket(made, server_side=True), address

        def handle_error(self, request, client_address):
            """A client that does not trust it."""

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        host = replace(plain, port=server.server_address[1], is_tls=True)
        stranger = Remote(host)
        stranger.ask()
        assert (
            "The certificate of node7 is not trusted (self-signed certificate" in stranger.problem
        )
        trusted = Remote(replace(host, ca_file=str(certificate)))
        assert len(trusted.ask()) == 1
        assert trusted.problem is None
        nowhere = Remote(replace(host, ca_file=str(tmp_path / "none.pem")))
        nowhere.ask()
        assert "cannot be used: No such file or directory" in nowhere.problem
        broken = Remote(replace(host, ca_file=str(key)))
        broken.ask()
        assert "cannot be used: it holds no certificate in PEM" in broken.problem
        server.shutdown()
