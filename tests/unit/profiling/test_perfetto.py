"""A trace is handed to Perfetto's page from this machine."""

import socket
import threading
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.perfetto import PAGE, TraceServer


@pytest.fixture
def server(tmp_path):
    file = tmp_path / "my train.json"
    file.write_bytes(b"[1]" * 100_000)
    return TraceServer(file, port=0)


def served(server, ask, is_enough=True):
    """What asking gives, and whether serving says that the file was fetched."""
    ended, stopped = [], threading.Event()
    thread = threading.Thread(target=lambda: ended.append(server.serve(stopped.is_set)))
    thread.start()
    try:
        answer = ask()
        if not is_enough:
            stopped.set()
        thread.join(30)
    finally:
        stopped.set()
    return answer, ended[0]


def test_the_page_gets_the_file_once_and_serving_ends(server):
    def fetch():
        with urlopen(server.address, timeout=30) as answer:
            return answer.headers, answer.read()

    (headers, content), fetched = served(server, fetch)
    assert content == b"[1]" * 100_000
    assert headers["Access-Control-Allow-Origin"] == PAGE
    assert fetched
    assert server.page == f"{PAGE}/#!/?url={server.address}"
    assert server.address.endswith("/my%20train.json")


def test_a_browser_may_ask_first(server):
    def ask():
        with urlopen(Request(server.address, method="OPTIONS"), timeout=30) as answer:
            allowed = answer.headers["Access-Control-Allow-Private-Network"]
        with urlopen(server.address, timeout=30) as answer:
            answer.read()  # one that is cut off is not the end
        return allowed

    assert served(server, ask)[0] == "true"


def test_no_other_file_is_served(server):
    def ask_for_another():
        with pytest.raises(HTTPError, match="404"):
            urlopen(server.address.replace("train", "../secret"), timeout=30)

    assert served(server, ask_for_another, is_enough=False) == (None, False)


def test_a_port_that_is_taken_is_a_sentence(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port}, .* write a file with -o"):
            TraceServer(tmp_path / "x.json", port)
