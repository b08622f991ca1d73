"""`gpuadvisor watch --host` with the real program and real daemons on the fake driver."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.integration.test_daemon import Machine
from tests.integration.test_watch import Terminal

pytestmark = pytest.mark.slow
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def machines(tmp_path_factory, fake_nvml):
    """Two machines whose daemons run: the first asks for a token and tells its processes."""
    made = [Machine(tmp_path_factory.mktemp(name), fake_nvml) for name in ("node7", "node8")]
    first, second = made
    (first.folder / "token").write_text("open sesame\n")
    first.configure(f'token_file = "{first.folder}/token"\nprocesses = true')
    first.control("LOAD=busy", f"PIDS={os.getpid()}:2048")
    second.control("LOAD=idle", "MODELS=t4")
    try:
        for machine in made:
            machine.start()
        yield made
    finally:
        for machine in made:
            machine.end()


@pytest.fixture
def watching(machines, tmp_path):
    """The environment of somebody who has these machines, a third one and the token configured."""
    first, second = machines
    folder = tmp_path / "config" / "gpuadvisor"
    folder.mkdir(parents=True)
    tables = [
        f'name = "node7"\naddress = "127.0.0.1:{first.port}"\ntoken_file = "{first.folder}/token"',
        f'name = "node8"\naddress = "127.0.0.1:{second.port}"',
        'name = "node9"\naddress = "node9.invalid"',
    ]
    (folder / "gpuadvisor.toml").write_text("\n".join(f"[[host]]\n{each}" for each in tables))
    gone = ("GPUADVISOR_", "NO_COLOR", "COLUMNS", "LINES")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(gone)}
    return {**inherited, "XDG_CONFIG_HOME": str(tmp_path / "config"), "TERM": "xterm-256color"}


def once(environ, *words):
    return subprocess.run(
        [sys.executable, "-m", "gpuadvisor", "watch", "--once", *words],
        env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip


def known(environ):
    """Return what is told of the machines once both have values."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        done = once(environ, "--host", "--json")
        told = {each["name"]: each for each in json.loads(done.stdout)["hosts"]}
        if told["node7"]["gpus"] and told["node8"]["gpus"]:
            return done, told
        assert time.monotonic() < deadline, done.stdout


def test_a_line_of_json_each_second(watching):
    known(watching)
    words = ["watch", "--json", "--host", "node7,node9"]
    with subprocess.Popen(
        [sys.executable, "-m", "gpuadvisor", *words], env=watching, stdout=subprocess.PIPE
    ) as process:
        told = [json.loads(process.stdout.readline())["hosts"] for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    assert [[each["name"] for each in hosts] for hosts in told] == [["node7", "node9"]] * 2


def test_all_that_are_configured_once(watching):
    done, told = known(watching)
    assert (done.returncode, done.stderr) == (7, "")
    assert [len(told[name]["gpus"]) for name in ("node7", "node8", "node9")] == [2, 1, 0]
    assert told["node8"]["gpus"][0]["metrics"]["gpu_utilization_pct"]["value"] == 0
    assert told["node9"]["problem"].startswith("No machine is known as node9.invalid")
    table = once(watching, "--host", "node8,node7")
    assert (table.returncode, table.stderr) == (0, "")
    assert "does not tell its processes: `processes = true`" in table.stdout
    assert str(os.getpid()) in table.stdout


def test_without_the_token_nothing_is_told(watching, machines):
    done = once(watching, "--host", f"127.0.0.1:{machines[0].port}")
    assert done.returncode == 7
    assert "asks for a token: name its file with --token-file" in done.stdout
    assert "H100" not in done.stdout
    with_it = {**watching, "GPUADVISOR_TOKEN": "open sesame"}
    then = once(with_it, "--host", f"127.0.0.1:{machines[0].port}", "--at", "0s")
    assert (then.returncode, "GPU 1  util" in then.stdout) == (0, True), then


def test_on_a_terminal_by_keys(watching, machines, tmp_path):
    known(watching)
    terminal = Terminal(["--host"], tmp_path, watching)
    try:
        terminal.until(b"3 hosts")
        terminal.until(b"never heard")
        terminal.until(b"6 jobs")
        terminal.press(b"\x1b[B")
        terminal.press(b"\r")
        terminal.until(b"[1 GPUs]")
        terminal.press(b"3")
        terminal.until(b"Time in which at least one kernel")
        machines[1].end()  # the one that is shown, or not: all goes on
        terminal.press(b"0")
        terminal.until(b"last heard ")
        terminal.press(b"q")
        assert terminal.ended() == 0
        assert terminal.is_clean()
    finally:
        terminal.close()
