"""The real daemon on a fake driver: begun, asked, scraped, broken and ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpuadvisor.domain.telemetry import HOST, GpuProcess, Sample
from tests.telemetry import GIB, frame, h100, sample
from tests.telemetry_store import stored

PATIENCE_S = 180.0
"""Ends what hangs; each of these takes seconds on an idle machine."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Machine:
    """A machine with two GPUs, whose fake driver obeys `control`."""

    def __init__(self, folder, library):
        self.folder = folder
        self.control_file = folder / "control"
        self.telemetry = folder / "store" / "telemetry"
        self.configuration = folder / "gpuadvisor.toml"
        self.port = free_port()
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "FAKE_"))}
        self.environ = {
            **inherited,
            "LD_LIBRARY_PATH": str(library),
            "GPUADVISOR_HOME": str(folder / "store"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "FAKE_NVML_CONTROL": str(self.control_file),
        }
        self.control("LOAD=busy")
        self.configure()

    def control(self, *lines):
        """Set the scene; nothing of the one before stays."""
        new = self.control_file.with_suffix(".new")
        new.write_text("\n".join(lines) + "\n")
        new.replace(self.control_file)

    def configure(self, more=""):
        self.configuration.write_text(f'[prometheus]\naddress = "127.0.0.1:{self.port}"\n{more}\n')

    def ask(self, *words, **environ):
        return self.run("daemon", *words, **environ)

    def run(self, *words, **environ):
        return subprocess.run(
            [sys.executable, "-m", "gpuadvisor", *words],
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def start(self):
        done = self.ask("start", "--config", str(self.configuration))
        assert done.returncode == 0, done.stderr
        return self.status()["pid"]

    def status(self):
        return json.loads(self.ask("status", "--json").stdout)

    def scrape(self):
        """Return name -> {the label that tells series apart: value}."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = {}
        for family in text_string_to_metric_families(text):
            for one in family.samples:
                labels = one.labels
                key = labels.get("gpu") or labels.get("kind") or ""
                found.setdefault(one.name, {})[key] = one.value
                if "state" in labels:
                    found.setdefault("states", {})[key, labels["metric"]] = labels["state"]
        return found

    def wait(self, what, see):
        """Return what `see` returns once it is true."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if seen := see():
                return seen
            time.sleep(0.1)
        log = self.telemetry / "daemon.log"
        raise AssertionError(f"{what}: never\n{log.read_text() if log.exists() else ''}")

    def log(self):
        return (self.telemetry / "daemon.log").read_text()

    def said(self, words):
        self.wait(words, lambda: words in self.log())

    def events(self, kind):
        from gpuadvisor.storage.telemetry.reader import TelemetryReader

        return [e for e in TelemetryReader(self.telemetry).events(0) if e.kind == kind]

    def end(self):
        told = self.ask("stop")
        assert told.returncode == 0, told.stderr


@pytest.fixture
def machine(tmp_path, fake_nvml):
    made = Machine(tmp_path, fake_nvml)
    yield made
    made.end()
    left = [p for p in psutil.process_iter(["environ"]) if _is_of(p, made)]
    assert left == []


def _is_of(process, machine):
    environ = process.info["environ"] or {}
    return environ.get("GPUADVISOR_HOME") == machine.environ["GPUADVISOR_HOME"]


def test_a_day_in_the_life(machine):
    machine.control("LOAD=busy", f"PIDS={os.getpid()}:2048")
    machine.telemetry.mkdir(parents=True)
    (machine.telemetry / "index.db").write_text("What an earlier life has left. " * 100)
    pid = machine.start()
    machine.said("index.db is damaged and was set aside: ")
    told = machine.wait("a fresh row", lambda: (s := machine.status())["fresh"] and s)
    assert [gpu["state"] for gpu in told["gpus"]] == ["ok", "ok"]
    assert told["endpoint"] == f"http://127.0.0.1:{machine.port}/metrics"
    machine.wait("a status of 0", lambda: machine.ask("status").returncode == 0)
    assert (machine.telemetry / "daemon.sock").is_socket()
    modes = [path.stat().st_mode for path in (machine.telemetry, *machine.telemetry.iterdir())]
    assert not any(mode & 0o007 for mode in modes)

    second = machine.ask("start", "--config", str(machine.configuration))
    assert second.returncode == 2
    assert f"A daemon writes this store already (process {pid})" in second.stderr
    assert len(second.stderr.splitlines()) == 1

    # On a busy machine the sampler may be late for a moment, and that is said then.
    def watched(*words):
        return json.loads(machine.run("watch", *words, "--once", "--json").stdout)

    seen = machine.wait("values", lambda: (s := watched())["problem"] is None and s)
    assert (seen["source"], len(seen["gpus"])) == ("daemon", 2)
    there = ("--host", f"127.0.0.1:{machine.port}")
    (seen,) = machine.wait(
        "values there", lambda: (s := watched(*there)["hosts"])[0]["problem"] is None and s
    )
    assert (seen["answers"], len(seen["gpus"])) == (True, 2)
    past = ("watch", *there, "--at", "0s")
    machine.wait("a value", lambda: "GPU 1  util 95 %" in machine.run(*past).stdout)

    used, up = "gpuadvisor_gpu_utilization_ratio", "gpuadvisor_driver_up"
    found = machine.wait("a value", lambda: used in (s := machine.scrape()) and s[up][""] and s)
    assert found[used] == {"0": 1.0, "1": 0.95}
    assert found[up] == {"": 1.0}

    machine.configure("nonsense = 1")
    assert machine.ask("reload").returncode == 0
    machine.said("`prometheus.nonsense` is not a key here")
    machine.configure("host_metrics = false\n[daemon]\nfast = true")
    assert machine.ask("reload").returncode == 0
    machine.said("the configuration was read again")
    machine.wait("no host metrics", lambda: not any("_host_" in name for name in machine.scrape()))
    machine.wait("more than one frame a second", lambda: frames_in(machine, 3.0) > 4)

    told = machine.wait("a job that runs", lambda: with_running_jobs(machine))  # not where rows lag
    (job,) = told["jobs"]
    assert (job["pids"], len(job["gpus"])) == ([os.getpid()], 2)
    unclaimed = sum(each["gpu_hours"] for each in told["unclaimed"].values())
    assert job["gpu_hours"] + unclaimed == pytest.approx(told["total"]["gpu_hours"])

    stopped = machine.ask("stop")
    assert (stopped.returncode, stopped.stdout) == (0, f"Stopped process {pid}.\n")
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    again = machine.ask("stop")
    assert (again.returncode, again.stdout) == (0, "No daemon runs on this store.\n")
    assert machine.ask("status").returncode == 1
    assert not (machine.telemetry / "daemon.json").exists()
    assert not (machine.telemetry / "daemon.sock").exists()


def test_a_lost_gpu_a_hanging_driver_and_a_kill(machine):
    machine.start()
    machine.control("LOAD=busy", "LOST_AFTER=*@1=0")
    key = ("1", "gpuadvisor_power_watts")
    machine.wait("the loss", lambda: states(machine).get(key) == "lost")
    found = machine.wait("the other", lambda: key[1] in (s := machine.scrape()) and s)
    assert set(found["gpuadvisor_power_watts"]) == {"0"}
    assert found["gpuadvisor_events_total"]["gpu_lost"] == 1
    assert "GPU 1 (NVIDIA H100 80GB HBM3) is lost" in machine.ask("status").stdout

    machine.control("LOAD=busy", "HANG=nvmlDeviceGetUtilizationRates")
    key = ("0", "gpuadvisor_gpu_utilization_ratio")
    machine.wait("staleness", lambda: states(machine).get(key) == "stale")
    assert "gpuadvisor_gpu_utilization_ratio" not in machine.scrape()
    old = machine.run("watch", "--once", "--json")
    seen = json.loads(old.stdout)
    assert (old.returncode, seen["source"], bool(seen["problem"])) == (7, "daemon", True)
    assert seen["gpus"][0]["metrics"]["gpu_utilization_pct"]["state"] == "stale"
    machine.control("LOAD=busy")

    killed = machine.status()["pid"]
    os.kill(killed, signal.SIGKILL)
    machine.wait("its end", lambda: machine.status()["pid"] is None)
    assert machine.start() != killed
    machine.wait("a fresh row", lambda: machine.status()["fresh"])
    lost, *_ = machine.wait("the end of the loss", lambda: ended(machine.events("gpu_lost")))
    assert lost.ended_s >= lost.began_s


def test_a_start_while_the_driver_hangs_is_answered_and_the_daemon_waits_for_it(machine):
    machine.control("HANG=nvmlInitWithFlags")
    began_s = time.monotonic()
    done = machine.ask("start", "--config", str(machine.configuration))
    assert (done.returncode, done.stdout[:15]) == (0, "The daemon runs")
    assert time.monotonic() - began_s < PATIENCE_S
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpuadvisor: the NVIDIA driver has not answered for 5 s: ")
    assert line.endswith("; the daemon waits for it")
    machine.control("LOAD=busy")
    machine.wait("values", lambda: "gpuadvisor_power_watts" in machine.scrape())
    (event,) = machine.wait("the end of the hang", lambda: ended(machine.events("driver")))
    assert event.message == "The NVIDIA driver does not answer."
    assert machine.events("sampler") == []


def test_an_xid_error_in_a_hang_is_told_and_a_lost_gpu_is_lost_after_it(machine):
    """Whoever takes the place of a sampler that hangs knows neither of them."""
    machine.start()
    lost = "FAULTS=*@1=15"
    machine.control("LOAD=busy", lost)
    machine.wait("the loss", lambda: machine.events("gpu_lost"))
    hang = "HANG=nvmlDeviceGetPowerUsage"
    machine.control("LOAD=busy", lost, hang, "XIDS=0:119")
    machine.wait("the hang", lambda: machine.events("driver"))
    machine.control("LOAD=busy", lost)
    machine.wait("the end of the hang", lambda: ended(machine.events("driver")))
    assert [event.key for event in machine.events("xid")][:1] == ["119"]
    machine.wait("a fresh row", lambda: machine.status()["fresh"])
    assert not ended(machine.events("gpu_lost"))
    assert [gpu["state"] for gpu in machine.status()["gpus"]] == ["ok", "lost"]


def states(machine):
    return machine.scrape().get("states", {})


def with_running_jobs(machine):
    told = json.loads(machine.run("jobs", "--json").stdout)
    return told if any(job["is_running"] for job in told["jobs"]) else None


def frames_in(machine, seconds):
    before = machine.scrape()["gpuadvisor_daemon_frames_total"][""]
    time.sleep(seconds)
    return machine.scrape()["gpuadvisor_daemon_frames_total"][""] - before


def ended(events):
    return [event for event in events if event.ended_s is not None]


def test_a_store_that_cannot_be_written_for_a_while(machine):
    pid = machine.start()
    machine.wait("a fresh row", lambda: machine.status()["fresh"])
    # No file may grow: what a full disk is to SQLite, for this process alone.
    daemon = psutil.Process(pid)
    daemon.rlimit(psutil.RLIMIT_FSIZE, (1, -1))
    waiting = "gpuadvisor_daemon_frames_waiting"
    # Frames wait for a moment also where the disk is slow.
    known = lambda now: now["gpuadvisor_events_total"].get("store")  # noqa: E731
    machine.wait("waiting frames", lambda: known(s := machine.scrape()) and s[waiting][""] >= 2)
    held_s = time.time()
    daemon.rlimit(psutil.RLIMIT_FSIZE, (-1, -1))
    machine.wait("nothing that waits", lambda: machine.scrape()[waiting][""] == 0)
    (event,) = machine.wait("the event", lambda: ended(machine.events("store")))
    assert event.began_s < held_s < event.ended_s
    assert event.data["seconds_lost"] == 0
    machine.said("store, over after")  # its beginning had no room in the log either
    from gpuadvisor.storage.telemetry.reader import TelemetryReader

    held = list(TelemetryReader(machine.telemetry).frames(event.began_s - 1, held_s))
    assert len(held) >= 2, "those that waited"


def test_alerts_reach_a_command(machine):
    told = machine.folder / "told"
    machine.configure(
        f'[[alert]]\nkinds = ["xid"]\ncommand = ["sh", "-c", "cat >> {told}; echo >> {told}"]'
    )
    machine.start()
    machine.control("LOAD=busy", "XIDS=1:79")
    machine.wait("the alert", lambda: told.exists() and told.read_text().count("\n"))
    notice = json.loads(told.read_text().splitlines()[0])
    assert (notice["event"]["kind"], notice["gpu_index"]) == ("xid", 1)


def test_a_daemon_that_is_killed_does_not_tell_the_same_again(machine):
    """The memory stays full while a daemon is killed and another takes over, and then is freed."""
    told = machine.folder / "told"
    command = f"cat >> {told}; echo >> {told}"
    machine.configure(f'[[alert]]\nkinds = ["memory_full"]\ncommand = ["sh", "-c", "{command}"]')
    machine.control("LOAD=busy", f"VALUES=nvmlDeviceGetMemoryInfo_v2@1={79 << 30}")
    machine.start()
    machine.wait("the alert", lambda: told.exists() and told.read_text().count("\n") == 1)
    machine.wait("its event in the store", lambda: machine.events("memory_full"))
    os.kill(machine.status()["pid"], signal.SIGKILL)
    machine.wait("its end", lambda: machine.status()["pid"] is None)
    machine.start()
    machine.said("memory_full, nobody could see whether it went on")
    machine.wait("the same again", lambda: len(machine.events("memory_full")) == 2)
    machine.control("LOAD=busy")
    machine.wait("its end", lambda: told.read_text().count("\n") == 2)
    notices = [json.loads(line) for line in told.read_text().splitlines()]
    assert [each["status"] for each in notices] == ["firing", "recovered"]


def test_no_gpu_is_a_sentence_and_leaves_nothing(tmp_path, fake_nvml):
    machine = Machine(tmp_path, fake_nvml)
    done = machine.ask("run", LD_LIBRARY_PATH="", FAKE_NVML_MODELS="")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpuadvisor: ")
    assert line.endswith("; with --wait-for-gpu the daemon stays.")
    assert not machine.telemetry.exists() or not list(machine.telemetry.iterdir())


def test_the_foreground_ends_with_a_signal_and_tells_systemd(machine):
    address = str(machine.folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(PATIENCE_S)
        environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30000000"}
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuadvisor", "daemon", "run", "--wait-for-gpu"],
            env={**machine.environ, **environ},
            stderr=subprocess.PIPE,
            text=True,
        )
        states = systemd.recv(4096).decode().splitlines()
        assert states[0] == "READY=1"
        while systemd.recv(4096) != b"WATCHDOG=1":
            pass
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE_S)
        while systemd.recv(4096) != b"STOPPING=1":
            pass
    assert process.returncode == 0
    assert "has stopped" in log.splitlines()[-1]


TRAINS = """
import time
import torch
import gpuadvisor
gpuadvisor.profile_on_demand()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.ones(4, 8)).mean().backward()
    optimizer.step()
    open("alive", "w").close()
    time.sleep(0.02)
"""


@pytest.fixture
def script(tmp_path):
    """A script that trains; its number."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAINS)
    process = subprocess.Popen([sys.executable, "train.py"], cwd=tmp_path)
    while not (tmp_path / "alive").exists():
        assert process.poll() is None
        time.sleep(0.05)
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_job_that_waits_is_profiled_once_and_its_findings_stand_beside_it(machine, script):
    waited(machine, script)
    machine.control("LOAD=busy", f"PIDS={script}:2048@0")
    machine.configure('[jobs]\nprofile = true\n[daemon]\nlog_level = "debug"')
    machine.start()
    machine.said(f"train.py (process {script}) was profiled, once, as train: ")
    job = job_of(machine, script)
    assert job["profile"]["name"] == "train"
    assert len(job["profile"]["findings"]) >= 1
    assert "its profile says: " in machine.run("jobs").stdout
    assert "train" in machine.run("diagnose", "train").stdout
    assert psutil.Process(script).is_running()

    machine.end()
    machine.start()  # which does not remember
    machine.said("no job that listens is to be profiled now")
    assert machine.log().count("was profiled") == 1
    assert job_of(machine, script)["profile"] == job["profile"]


def waited(machine, pid):
    """Write the last minutes of a job that waits for its input."""
    process = GpuProcess(
        h100(0).uuid, pid, "compute", GIB, "python", psutil.Process().username(),
        "python train.py", cpu_pct=30.0, children_cpu_pct=380.0, by_gpuadvisor=False,
        started_s=psutil.Process(pid).create_time(),
    )  # fmt: skip
    made = frame(0.0, sample(gpu_utilization_pct=54, sm_active_pct=45))
    samples = {**made.samples, HOST: Sample({"cpu_pct": 30.0, "io_stall_pct": 0.0})}
    made = replace(made, samples=samples, processes=(process,))
    began_s = time.time() - 1000
    stored(machine.telemetry, *(replace(made, time_s=began_s + 4.8 * at) for at in range(200)))


def job_of(machine, pid):
    (job,) = [
        each
        for each in json.loads(machine.run("jobs", "--json").stdout)["jobs"]
        if pid in each["pids"]
    ]
    return job
