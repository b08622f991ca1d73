"""The socket that tells other users of processes: what it tells whom, and whom it lets wait."""

import os
import socket
import threading
import time
from contextlib import closing
from dataclasses import replace

import msgspec
import pytest

from gpuadvisor.daemon import bounded_server, process_server
from gpuadvisor.daemon.process_server import CLIENTS, ProcessServer, hides_processes, told
from gpuadvisor.domain.telemetry import GpuProcess
from gpuadvisor.storage.locks import peer_of
from gpuadvisor.storage.telemetry import listed_processes
from gpuadvisor.storage.telemetry.listed_processes import Answer, listed, serving, short_address
from gpuadvisor.storage.telemetry.reader import TelemetryReader
from gpuadvisor.storage.telemetry.schema import PROGRAM_COLUMNS
from tests.telemetry import START_S, frame, sample
from tests.telemetry_store import stored

MANY = 40


def process(pid, user="ann"):
    return GpuProcess(
        "GPU-0", pid, "compute", 1 << 30, "python", user, f"python {pid}.py", started_s=1.5
    )


@pytest.fixture
def folder(tmp_path):
    """A store with three listings of many processes, in a folder whose path no address can hold."""
    path = tmp_path / ("long" * 40) / "telemetry"
    made = [
        replace(frame(at, sample()), processes=tuple(process(pid) for pid in range(MANY)))
        for at in range(3)
    ]
    stored(path, *made)
    return path


@pytest.fixture
def server(folder):
    made = ProcessServer(folder, os.getegid(), None)
    yield made
    made.close()


@pytest.fixture
def asking(folder):
    """A function that returns a connection to the server."""
    made = []

    def connect():
        made.append(socket.socket(socket.AF_UNIX))
        made[-1].settimeout(60)
        with short_address(folder / "daemon.sock") as address:
            made[-1].connect(address)
        return made[-1]

    yield connect
    for each in made:
        each.close()


def ask(channel, text):
    channel.sendall(text)
    with channel.makefile("rb") as stream:
        return msgspec.json.decode(stream.read(), type=Answer)


QUESTION = b'{"since_s": %f, "until_s": %f}\n' % (START_S, START_S + 10)


def test_an_answer_has_what_the_file_has(server, folder, asking):
    found = ask(asking(), QUESTION)
    assert found == msgspec.convert(
        msgspec.to_builtins(listed(folder, START_S, START_S + 10)), Answer, strict=False
    )
    assert len(found.rows) == 3 * MANY


def test_who_serves_is_known_and_leaves_nothing_behind(folder):
    assert serving(folder) is None
    server = ProcessServer(folder, os.getegid(), None)
    assert serving(folder) == os.getpid()
    server.close()
    assert serving(folder) is None
    assert not (folder / "daemon.sock").exists()


def test_a_socket_that_cannot_be_removed_does_not_keep_the_daemon_from_ending(folder):
    """As on a disk that turned read-only, where the last rows and notices still have to go out."""
    server = ProcessServer(folder, os.getegid(), None)
    (folder / "daemon.sock").unlink()
    (folder / "daemon.sock").mkdir()
    server.close()


def test_the_socket_of_a_killed_daemon_is_replaced(folder, asking):
    with (
        closing(socket.socket(socket.AF_UNIX)) as dead,
        short_address(folder / "daemon.sock") as at,
    ):
        dead.bind(at)
    with pytest.raises(ConnectionRefusedError):
        asking()
    server = ProcessServer(folder, os.getegid(), None)
    assert asking()
    server.close()


def test_systemds_folder_of_the_service_is_used(folder, tmp_path, monkeypatch, asking):
    monkeypatch.setenv("RUNTIME_DIRECTORY", f"{tmp_path}:/run/other")
    server = ProcessServer(folder, os.getegid(), None)
    assert (tmp_path / "daemon.sock").is_socket()
    assert len(ask(asking(), QUESTION).rows) == 3 * MANY
    server.close()
    assert list(tmp_path.glob("*.sock")) == list(folder.glob("*.sock")) == []


def test_a_long_answer_comes_in_parts_and_loses_nothing(folder, monkeypatch):
    whole = listed(folder, START_S, START_S + 10)
    monkeypatch.setattr(listed_processes, "ROWS", MANY // 2)  # less than one listing
    part = listed(folder, START_S, START_S + 10)
    assert (len(part.rows), part.until_s < START_S + 1) == (MANY, True)
    reader = TelemetryReader(folder)
    assert len(list(reader.processes(0, 2e9).rows)) == len(whole.rows)
    assert [len(each.processes) for each in reader.frames(0)] == [MANY] * 3


WRONG = {
    "no question": b"GET / HTTP/1.1\n",
    "a line without an end": b"x" * process_server.QUESTION_BYTES,
    "more than a day": b'{"since_s": 0, "until_s": 1e9}\n',
    "the wrong way round": b'{"since_s": 9, "until_s": 1}\n',
    "no time": b'{"since_s": 1e300, "until_s": 1.1e300}\n',
    "the past": b'{"since_s": -1e18, "until_s": -1e18}\n',
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_what_cannot_be_answered_is_said(server, asking, text):
    assert ask(asking(), text).problem
    assert ask(asking(), QUESTION).rows


def test_clients_that_never_read_are_cut_and_the_next_is_served(
    server, folder, asking, monkeypatch
):
    monkeypatch.setattr(bounded_server, "REQUEST_S", 1.0)
    monkeypatch.setattr(bounded_server, "LOOK_S", 0.05)
    words = "x" * 290
    long = tuple(replace(process(pid), command=f"{pid} {words}") for pid in range(3000))
    stored(folder, replace(frame(4, sample()), processes=long))  # more than the kernel keeps
    clients = [asking() for _ in range(CLIENTS)]
    for client in clients:
        client.sendall(QUESTION)
    deadline = time.monotonic() + 60
    while not (found := ask(asking(), QUESTION)).rows:
        assert found.is_busy
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(found.rows) == 3 * MANY + 3000
    with clients[0].makefile("rb") as stream, pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(stream.read(), type=Answer)


def test_clients_that_drip_are_cut_and_the_next_is_served(server, asking, monkeypatch):
    monkeypatch.setattr(bounded_server, "REQUEST_S", 1.0)
    monkeypatch.setattr(bounded_server, "LOOK_S", 0.05)
    clients, ended = [asking() for _ in range(CLIENTS)], threading.Event()

    def drip():
        while not ended.wait(0.05):
            for client in clients:
                try:
                    client.send(b" ")
                except OSError:
                    return

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        deadline = time.monotonic() + 60
        while not ask(asking(), QUESTION).is_busy:  # until they are all accepted
            assert time.monotonic() < deadline
        while ask(asking(), QUESTION).is_busy:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        ended.set()
        dripping.join()


VALUES = (7, "compute", "python", "ann", "a b", "c0", 0, 1, 1.5, 0)
NAMED = dict(zip(PROGRAM_COLUMNS, VALUES, strict=True))


@pytest.mark.parametrize(
    ("user", "hides", "missing"),
    [
        ("ann", False, set()),
        ("ann", True, set()),
        ("bob", False, {"command"}),
        (None, False, {"command"}),
        (
            "bob",
            True,
            {"name", "user", "command", "container", "parent_pid", "started_s", "by_gpuadvisor"},
        ),
    ],
)
def test_who_is_told_what(user, hides, missing):
    row = (1.0, 1, 2, 3, 4, 5, 6)
    found = Answer(9.0, {1: ("GPU-0", *NAMED.values())}, [row])
    seen = told(found, user, hides, None)
    told_row = (1.0, 1, 2, 3, None, None, None) if "name" in missing else row
    shown = {name: None if name in missing else value for name, value in NAMED.items()}
    assert seen.programs == {1: ("GPU-0", *shown.values())}
    assert (seen.rows, seen.until_s, seen.withheld is None) == ([told_row], 9.0, not missing)


def test_what_is_not_there_is_not_said_to_be_left_out():
    values = {**NAMED, "command": None}
    assert told(Answer(9.0, {1: ("GPU-0", *values.values())}), "bob", False, None).withheld is None


PROC = "proc /proc proc rw,nosuid{options} 0 0\n"


@pytest.mark.parametrize(
    ("mounts", "hides"),
    [
        (PROC.format(options=""), False),
        (PROC.format(options=",hidepid=0"), False),
        (PROC.format(options=",hidepid=2,gid=5"), True),
        (PROC.format(options=",hidepid=invisible"), True),
        (PROC.format(options="") + PROC.format(options=",hidepid=1"), True),
        ("tmpfs /tmp tmpfs rw,hidepid=2 0 0\n", False),
    ],
)
def test_whether_the_machine_hides_processes(tmp_path, mounts, hides):
    path = tmp_path / "mounts"
    path.write_text(mounts)
    assert hides_processes(path) == hides


def test_the_other_end_is_who_the_kernel_says():
    one, other = socket.socketpair()
    with one, other:
        seen = peer_of(one)
        assert (seen.process, seen.user, seen.group) == (os.getpid(), os.geteuid(), os.getegid())
        assert process_server.groups_of(one) == {os.getegid(), *os.getgroups()}
