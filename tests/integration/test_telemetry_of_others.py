"""The store of a daemon as other users of the machine have it: members of its group, and others."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
ROOT = Path(__file__).parents[2]
PATIENCE_S = 120
"""Ends what hangs."""
GROUP, ADMINS, MEMBER, OTHER = 4300, 4400, 4321, 4322
"""A group that may read, one that sees all, a user in the first, and one who is not."""

SCRIPT = """
    import contextlib, io, json, os, signal, sys, time
    from dataclasses import replace
    from pathlib import Path
    import gpuadvisor
    import gpuadvisor.accounting.gathering, gpuadvisor.commands.jobs
    import gpuadvisor.reports.jobs_document, gpuadvisor.reports.strict_json
    import gpuadvisor.commands._output, gpuadvisor.storage.telemetry.frames
    from gpuadvisor.cli import main
    from gpuadvisor.daemon import sources
    from gpuadvisor.daemon.process_server import ProcessServer
    from gpuadvisor.domain.jobs import Amounts, Use
    from gpuadvisor.domain.telemetry import GpuProcess
    from gpuadvisor.storage.telemetry.jobs import JobsFile
    from gpuadvisor.storage.telemetry.files import share
    from gpuadvisor.storage.telemetry.writer import TelemetryWriter
    from tests.telemetry import START_S, frame, sample

    from gpuadvisor.rules.jobs.cause import load_causes
    load_causes()
    folder, state, group, user, groups = (
        Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:5]), json.loads(sys.argv[5])
    )
    home = os.environ["GPUADVISOR_HOME"] = str(folder.parent)
    now_s = time.time()
    listed = tuple(
        GpuProcess("GPU-0", pid, "compute", 1 << 30, "python", owner, f"python {owner}.py")
        for pid, owner in ((7, "4321"), (8, "ann"))
    )

    class Admins:
        number = 4400
        __str__ = lambda self: "gpuadmin"

    (is_ready, ready), (over, end) = os.pipe(), os.pipe()
    if (writing := os.fork()) == 0:
        os.close(end)
        folder.parent.mkdir(mode=0o700)
        (folder.parent / "gpuadvisor.db").touch()
        share(folder, group)
        writer = TelemetryWriter(folder)
        server = ProcessServer(folder, group, Admins())
        made = [frame(now_s - START_S - at, sample()) for at in (60, 30, 0)]
        writer.append([replace(each, processes=listed) for each in made])
        file = JobsFile(folder / "jobs.db")
        took = Amounts(seconds=1800.0, held_s=3600.0)
        hour_s = now_s // 3600 * 3600
        file.add([Use(hour_s, "GPU-0", p, None, now_s, now_s, 1, took) for p in listed], now_s)
        if state == "stopped":
            server.close()
            writer.close()
            file.close()
        os.write(ready, b"x")
        os.read(over, 1)  # until the other ends
        os._exit(0)
    os.read(is_ready, 1)
    if state == "killed":
        os.kill(writing, signal.SIGKILL)
        os.waitpid(writing, 0)

    def run(*words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(words)
        return status, out.getvalue().splitlines(), err.getvalue().strip()

    def read():
        told = {
            "status": run("daemon", "status"),
            "check": run("db", "check"),
            "export": run("db", "export", "-o", "-"),
            "processes": run("db", "export", "-o", "-", "--processes"),
        }
        try:
            told["telemetry"] = len(gpuadvisor.telemetry("1h"))
            told["watch"] = len(next(sources.FromStore(folder).frames()).samples)
            window = sources.window_of_store(now_s - 100, now_s)
            told["window"] = window.gpus[0].processes is not None, window.withheld
        except Exception as error:
            told["error"] = str(error)
        return told

    own = read()  # what is imported is imported now: others may not read where it is
    modes = {
        str(path.relative_to(folder.parent)): oct(path.stat().st_mode & 0o7777)
        for path in (folder.parent, *folder.parent.rglob("*"))
    }
    private = [folder / "writer.lock", *folder.glob("processes-*"), folder / "../gpuadvisor.db"]
    os.setgroups(groups)
    os.setgid(group if groups else user)
    os.setuid(user)
    blocked = []
    for path in private:
        try:
            path.open().close()
        except FileNotFoundError:  # the lock of a daemon that was stopped
            pass
        except PermissionError:
            blocked.append(path.name)
        else:
            raise AssertionError(path)
    theirs = read()
    theirs["jobs"] = run("jobs", "--json", "--since", "2h")
    print(json.dumps({"own": own, "theirs": theirs, "modes": modes, "blocked": blocked}))
    sys.stdout.flush()
    os._exit(0)
"""


@pytest.fixture
def seen():
    """A function that returns what root and another user see of a store, and its modes."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)

        def see(state, *, user=MEMBER, groups=(GROUP,)):
            words = (f"{name}/home/telemetry", state, str(GROUP), str(user), json.dumps(groups))
            done = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(SCRIPT), *words],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        yield see


PRIVATE = {".": "0o710", "gpuadvisor.db": "0o600", "telemetry": "0o2750"}


def lines_of(told):
    """Return pid, user and command line of each row of exported processes."""
    _, (_, *rows), _ = told["processes"]
    return {tuple(row.split(",")[place] for place in (4, 7, 8)) for row in rows}


def jobs_of(told):
    """Return the users of the jobs, all GPU-hours that are told of, and what is withheld."""
    status, lines, _ = told["jobs"]
    assert status == 0, told["jobs"]
    found = json.loads("\n".join(lines))
    users = sorted(each["user"] for each in found["jobs"])
    return users, found["total"]["gpu_hours"], found["withheld"]


@pytest.mark.parametrize("state", ["running", "stopped", "killed"])
def test_a_member_of_the_group_reads_all_but_processes(seen, state):
    found = seen(state)
    own, theirs = found["own"], found["theirs"]
    runs = state == "running"
    assert lines_of(own) == {("7", "4321", "python 4321.py"), ("8", "ann", "python ann.py")}
    status, lines, _ = theirs["status"]
    assert (status, lines[0]) == (own["status"][0], own["status"][1][0])
    assert (status, "The daemon runs" in lines[0]) == ((0, True) if runs else (1, False))
    status, (_, *lines), _ = theirs["check"]
    assert status == 0
    files = {
        "gpuadvisor.db": "only root",
        "index.db": "ok",
        "jobs.db": "only root",
        "samples": "ok",
    }
    for line, (name, word) in zip(lines, {**files, "processes": "only root"}.items(), strict=True):
        assert (line.split()[0].startswith(name), word in line) == (True, True)
    assert theirs["export"] == own["export"]
    assert theirs["telemetry"] == own["telemetry"] == 3
    assert theirs["watch"] == own["watch"] == 2
    status, rows, said = theirs["processes"]
    if runs:
        assert lines_of(theirs) == {("7", "4321", "python 4321.py"), ("8", "ann", "")}
        withheld = (
            "The command lines of others' processes are left out: only root, group gpuadmin may"
            " see them."
        )
        assert (status, said) == (0, f"gpuadvisor: {withheld}\n-: 6 rows")
        assert theirs["window"] == [True, withheld]
    else:
        withheld = (
            "Processes on GPUs are in files that only root may read; others are told of them by"
            " the daemon, and it does not run."
        )
        assert (status, rows, said) == (5, [], f"gpuadvisor: {withheld}")
        assert theirs["window"] == [False, withheld]
    users, hours, withheld = jobs_of(theirs)
    assert (users, hours) == ((["4321"], 1.0) if runs else ([], 0.0))
    assert ("Others' jobs are left out" if runs else "and it does not run") in withheld
    assert PRIVATE.items() <= found["modes"].items()
    assert not any(int(mode, 8) & 0o007 for mode in found["modes"].values())
    shared = {name for name, mode in found["modes"].items() if int(mode, 8) & 0o040}
    assert not any("processes" in name or "lock" in name for name in shared)
    assert {"gpuadvisor.db"} <= {*found["blocked"]}
    assert runs <= ("writer.lock" in found["blocked"])


def test_members_of_the_admins_group_are_told_everything(seen):
    found = seen("running", groups=(GROUP, ADMINS))
    assert lines_of(found["theirs"]) == lines_of(found["own"])
    assert jobs_of(found["theirs"]) == (["4321", "ann"], 1.0, None)
    assert found["theirs"]["window"] == [True, None]


def test_others_read_nothing_and_are_told_so(seen):
    found = seen("running", user=OTHER, groups=())
    theirs = found["theirs"]
    for told in (theirs["status"], theirs["check"], theirs["export"], theirs["processes"]):
        assert (told[0], told[1]) == (5, [])
        assert "telemetry cannot be read (Permission denied): ask its owner" in told[2]
    assert "cannot be read (Permission denied)" in theirs["error"]


ASKED = """
    import json, os, sys
    from dataclasses import replace
    from pathlib import Path
    from gpuadvisor.daemon import process_server
    from gpuadvisor.domain.telemetry import GpuProcess
    from gpuadvisor.storage.telemetry.reader import TelemetryReader
    from gpuadvisor.storage.telemetry.files import share
    from gpuadvisor.storage.telemetry.writer import TelemetryWriter
    from tests.telemetry import START_S, frame, sample

    folder, group, user = Path(sys.argv[1]), *map(int, sys.argv[2:])
    listed = tuple(GpuProcess("GPU-0", pid, "compute", 1 << 30, "python") for pid in range(8))
    made = [replace(frame(5 * at, sample()), processes=listed) for at in range(2880)]
    (is_ready, ready), (over, end), (questions, asked) = os.pipe(), os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(end)
        folder.parent.mkdir(mode=0o700)
        share(folder, group)
        answer = process_server.listed

        def counted(*span):
            os.write(asked, b"?")
            return answer(*span)

        process_server.listed = counted
        writer = TelemetryWriter(folder)
        writer.append(made[:-1])
        server = process_server.ProcessServer(folder, group, None)
        os.write(ready, b"x")
        os.read(over, 1)
        writer.append(made[-1:])
        os.write(ready, b"x")
        os.read(over, 1)  # until the other ends
        os._exit(0)
    os.read(is_ready, 1)
    next(TelemetryReader(folder).frames(0))  # what is imported is imported now
    os.setgroups([group])
    os.setgid(group)
    os.setuid(user)
    frames = TelemetryReader(folder).frames(0)
    found = [next(frames)]
    os.write(end, b"x")  # the last listing comes after the first answer
    os.read(is_ready, 1)
    found += frames
    counts = [len(each.processes) for each in found if each.processes is not None]
    print(json.dumps([counts == [8] * 2880, len(os.read(questions, 1 << 16))]))
    sys.stdout.flush()
    os._exit(0)
"""


def test_hours_of_processes_are_asked_for_in_spans_as_long_as_answers():
    """Of 23,040 rows in four hours an answer has 4,096; once a minute were 240 questions."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        words = (f"{name}/home/telemetry", str(GROUP), str(MEMBER))
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(ASKED), *words],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 0, done.stderr
    is_whole, questions = json.loads(done.stdout)
    assert is_whole
    assert questions <= 10


READ = """
    import contextlib, io, json, os, sys
    from gpuadvisor.cli import main

    def run():
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(["db", "export", "-o", "-", "--processes"])
        return status, out.getvalue().splitlines(), err.getvalue().strip()

    run()  # what is imported is imported now: others may not read where it is
    os.setgroups([])
    os.setuid(int(sys.argv[1]))  # and still in the daemon's own group
    print(json.dumps(run()))
"""


@pytest.mark.slow
def test_a_real_daemon_tells_while_it_runs_and_its_files_say_nothing_after(fake_nvml):
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        Path(name).chmod(0o755)
        own = stack.enter_context(subprocess.Popen(["sleep", "71.5"], user=MEMBER, group=MEMBER))
        stack.callback(own.kill)
        other = stack.enter_context(subprocess.Popen(["sleep", "72.5"]))
        stack.callback(other.kill)
        environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "LD_LIBRARY_PATH": str(fake_nvml),
            "FAKE_NVML_PIDS": f"{own.pid},{other.pid}",
            "GPUADVISOR_HOME": f"{name}/home",
            "XDG_CONFIG_HOME": name,
        }

        def run(*words):
            done = subprocess.run(
                [sys.executable, *words], env=environ, capture_output=True, text=True, timeout=60
            )
            assert done.stderr == ""
            return done.stdout

        def asked():
            return json.loads(run("-c", textwrap.dedent(READ), str(MEMBER)))

        run("-m", "gpuadvisor", "daemon", "start")
        try:
            deadline = time.monotonic() + PATIENCE_S
            while len((told := asked())[1]) < 2:  # a line of titles, and the first listing
                assert time.monotonic() < deadline, told
            commands = {tuple(row.split(",")[place] for place in (7, 8)) for row in told[1][1:]}
            assert commands == {(str(MEMBER), "sleep 71.5"), ("root", "")}
            assert "The command lines of others' processes are left out: only root" in told[2]
            daemon = json.loads(run("-m", "gpuadvisor", "daemon", "status", "--json"))["pid"]
            os.kill(daemon, signal.SIGKILL)
            status, rows, said = asked()
            assert (status, rows) == (5, [])
            assert said.endswith(
                "may read; others are told of them by the daemon, and it does not run."
            )
            run("-m", "gpuadvisor", "daemon", "start")
            assert asked()[0] == 0
        finally:
            run("-m", "gpuadvisor", "daemon", "stop")
        assert asked() == [status, rows, said]
