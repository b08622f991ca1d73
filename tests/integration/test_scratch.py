"""A run in a private view leaves every file of its user as it was, and nothing of its own."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from gpuadvisor.collectors.script.request import Command, RunOutcome
from gpuadvisor.collectors.script.run_folder import PREFIX, run_folder
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.scratch import scratch, unavailable
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import AdvisorError
from tests.integration import runs

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=unavailable() or "")

HARMFUL = """
import ctypes, mmap, os, pathlib, shutil, sqlite3, subprocess, sys
import numpy, torch
home, tmp, outside = map(pathlib.Path, sys.argv[1:])

def spoil(folder):
    folder = pathlib.Path(folder)
    (folder / "overwritten.pt").write_text("new")
    (folder / "deleted").unlink()
    os.replace(folder / "renamed", folder / "overwritten.txt")
    with open(folder / "appended", "a") as file:
        file.write("more")
    os.truncate(folder / "truncated", 1)
    os.chmod(folder / "rights", 0o777)
    os.utime(folder / "times", (1, 1))
    os.symlink("times", folder / "link")
    os.link(folder / "appended", folder / "hard")
    (folder / "linked").write_text("through a symlink")
    with open(folder / "mapped", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[0] = 1
    shutil.rmtree(folder / "tree")
    (folder / "tree").mkdir()
    (folder / "tree" / "other").write_text("other")
    (folder / "deep" / "down" / "file").write_text("changed")
    torch.save({"w": torch.zeros(3)}, folder / "weights.pt")
    numpy.memmap(folder / "array", dtype="uint8", mode="r+", shape=(4,))[:] = 7
    with sqlite3.connect(folder / "table.db") as table:
        table.execute("insert into t values (2)")
    name = os.fsencode(folder / "native")
    libc = ctypes.CDLL(None)
    libc.write(libc.open(name, os.O_WRONLY | os.O_TRUNC), b"native", 6)
    shell = "echo new > by_shell; rm -f other_by_shell"
    subprocess.run(["sh", "-c", shell], cwd=folder, check=True)

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        (outside / "by_worker").write_text(str(index))
        (outside / f"new_by_worker_{index % 4}").write_text("1")
        return torch.ones(4)

if __name__ == "__main__":
    for folder in (".", home, tmp, outside):
        spoil(folder)
    os.rename("renamed_folder", "other_name") if os.geteuid() == 0 else None
    pathlib.Path("~/in_home").expanduser().write_text("1")
    pathlib.Path("/tmp/gpuadvisor-test-in-tmp").write_text("1")
    pathlib.Path("/dev/shm/gpuadvisor-test-shared").write_text("1")
    model = torch.nn.Linear(4, 1)
    for epoch in range(3):
        for batch in torch.utils.data.DataLoader(Data(), 4, num_workers=2):
            model.zero_grad()
            model(batch).sum().backward()
            with torch.no_grad():
                model.weight -= 0.1 * model.weight.grad
    print("done", sorted(os.listdir(".")))
"""


def furnish(folder: Path) -> None:
    """Make the files of a user, of every kind that is spoilt."""
    folder.mkdir(parents=True, exist_ok=True)
    names = (
        "overwritten.pt overwritten.txt deleted renamed appended truncated rights times mapped"
        " target native by_shell other_by_shell by_worker weights.pt"
    )
    for name in names.split():
        (folder / name).write_text(f"the user's {name}")
    (folder / "linked").symlink_to("target")
    for inner in ("tree/a", "tree/b/c", "deep/down/file", "renamed_folder/file"):
        (folder / inner).parent.mkdir(parents=True, exist_ok=True)
        (folder / inner).write_text(inner)
    numpy.arange(4, dtype="uint8").tofile(folder / "array")
    with sqlite3.connect(folder / "table.db") as table:
        table.execute("create table t (x)")
        table.execute("insert into t values (1)")
    table.close()


def fingerprint(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return everything about a folder's files but when they were last read."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        content = b""
        if path.is_symlink():
            content = os.fsencode(path.readlink())
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).digest()
        found[str(path.relative_to(folder))] = (
            content,
            status.st_mode,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_ino,
            status.st_nlink,
        )
    return found


def run_in_view(folder: Path, text: str, *args: str, **environment: str) -> RunOutcome:
    (folder / "script.py").write_text(textwrap.dedent(text))
    command = Command(sys.executable, "script.py", args, folder=str(folder))
    return run_script(replace(runs.request(command, **environment), scratch=True))


@pytest.fixture
def elsewhere():
    """A folder that is on no path which has to do with the script, but `/var/tmp`."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        yield Path(name)


def test_no_byte_changes_outside(tmp_path, elsewhere):
    work = tmp_path / "a work, with: all \\kinds of é"
    home = tmp_path / "home"
    temporary = tmp_path / "temporary"
    folders = (work, home, temporary, elsewhere)
    for folder in folders:
        furnish(folder)
    (work / "script.py").write_text(HARMFUL)
    before = [fingerprint(folder) for folder in folders]

    command = Command(
        sys.executable,
        "script.py",
        (str(home), str(temporary), str(elsewhere)),
        folder=str(work),
    )
    request = replace(runs.request(command, HOME=str(home)), scratch=True)
    outcome = run_script(request)

    assert outcome.state is TrialState.COMPLETE, outcome.reason + outcome.output
    assert "'weights.pt'" in outcome.output
    assert [fingerprint(folder) for folder in folders] == before
    assert not Path("/tmp/gpuadvisor-test-in-tmp").exists()
    assert not Path("/dev/shm/gpuadvisor-test-shared").exists()

    written = {name: file.size for name, file in (outcome.written or {}).items()}
    assert written["overwritten.pt"] == 3
    assert written["deleted"] == -1
    assert written["renamed"] == -1
    assert written["truncated"] == 1
    assert written["tree/a"] == written["tree/b/c"] == -1
    assert written["tree/other"] == 5
    assert written["target"] == len("through a symlink")
    assert "times" not in written or written["times"] > 0
    assert written[f"{elsewhere}/by_worker"] > 0
    assert written[f"{elsewhere}/new_by_worker_3"] == 1
    assert written[f"{home}/in_home"] == 1
    assert written["/tmp/gpuadvisor-test-in-tmp"] == 1
    assert written["/dev/shm/gpuadvisor-test-shared"] == 1
    assert "script.py" not in written


def test_there_is_no_network(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcome = run_in_view(
            tmp_path,
            f"""
            import os, socket
            for address in (("127.0.0.1", {port}), ("192.0.2.1", 80), ("example.com", 443)):
                try:
                    socket.create_connection(address, timeout=5)
                    print("reached", address)
                except OSError as error:
                    print("refused")
            with socket.create_server(("127.0.0.1", 0)) as own:
                socket.create_connection(own.getsockname(), timeout=5)
                print("own loopback works")
            print(os.environ["WANDB_MODE"], os.environ["HF_HUB_OFFLINE"])
            """,
        )
    assert outcome.output.split("\n") == [*["refused"] * 3, "own loopback works", "offline 1"]


def test_a_socket_of_a_server_is_not_reached(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        outcome = run_in_view(
            tmp_path,
            """
            import socket
            try:
                socket.socket(socket.AF_UNIX).connect("s")
            except ConnectionRefusedError:
                print("refused")
            """,
        )
    assert outcome.output == "refused"


KILLED = """
import os, sys
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.request import Command
from dataclasses import replace
from tests.integration import runs
command = Command(sys.executable, "script.py", folder=sys.argv[1])
run_script(replace(runs.request(command), scratch=True))
"""


def test_a_killed_gpuadvisor_leaves_nothing_mounted_and_its_scratch_is_removed(tmp_path):
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()
    (work / "script.py").write_text(
        "import os, time\nopen('written', 'w').write('1')\nos.mkdir('mine', 0)\n"
        "open('/tmp/gpuadvisor-test-started', 'w').close()\ntime.sleep(60)"
    )
    ours = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(work)], env=ours, cwd=Path(__file__).parents[2]
    )
    deadline = time.monotonic() + 60
    while not list(temporary.glob(f"{PREFIX}*/scratch/layers/*/upper/**/mine")):
        assert time.monotonic() < deadline, "the script did not start"
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while _processes_in(work):
        assert time.monotonic() < deadline, "the script is still running"
        time.sleep(0.05)
    assert str(temporary) not in Path("/proc/self/mountinfo").read_text()
    assert sorted(work.iterdir()) == [work / "script.py"]
    (left,) = temporary.glob(f"{PREFIX}*")
    os.utime(left, (1, 1))
    clean = "from gpuadvisor.collectors.script import run_folder as r\nwith r.run_folder(): pass"
    subprocess.run([sys.executable, "-c", clean], env=ours, check=True)
    assert list(temporary.iterdir()) == []


def _processes_in(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                found.append(process.name)
        except OSError:
            continue
    return found


def test_a_command_that_is_not_there(tmp_path):
    request = runs.request(Command(str(tmp_path / "python"), "script.py", folder=str(tmp_path)))
    with pytest.raises(AdvisorError, match="cannot start"):
        run_script(replace(request, scratch=True))


REFUSING = """
import ctypes, errno, os, platform, struct, sys
from dataclasses import replace
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.scratch import NoPrivateViewError, unavailable
from tests.integration import runs

# A filter as that of Docker: load the number of the call, refuse `unshare`, allow the others.
number = {"x86_64": 272, "aarch64": 97}[platform.machine()]
refuse, allow = 0x50000 | errno.EPERM, 0x7FFF0000
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, refuse), (6, 0, 0, allow)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0

print(unavailable())
command = Command(sys.executable, "script.py", folder=sys.argv[1])
try:
    run_script(replace(runs.request(command), scratch=True))
except NoPrivateViewError as error:
    print(error)
"""


def test_without_a_view_the_script_does_not_run(tmp_path):
    (tmp_path / "script.py").write_text("open('ran', 'w').close()")
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", REFUSING, str(tmp_path)]
    output = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    reason, refusal = output.splitlines()
    assert "cannot make a user namespace: Operation not permitted; " in reason
    assert refusal == f"the script was not run: {reason}"
    assert not (tmp_path / "ran").exists()


def test_the_script_ends_as_it_would(tmp_path):
    outcome = run_in_view(tmp_path, "raise ValueError('no data')")
    assert (outcome.state, outcome.reason) == (TrialState.CRASHED, "ValueError: no data")
    outcome = run_in_view(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert outcome.reason.startswith("killed by SIGKILL")


RESUMING = """
import os, time
start = int(open("last.txt").read()) if os.path.exists("last.txt") else 0
print("starts at", start)
open("last.txt", "w").write("30")
open("late.txt", "a").close()
open("log.txt", "w").close()
open("log.txt").close()
if start:
    import torch
    model = torch.nn.Linear(4, 1)
    for step in range(40):
        model(torch.randn(2, 4)).mean().backward()
        time.sleep(0.01)
        if step == 35:
            open("late.txt").close()
"""


def test_a_script_that_resumes_is_noticed_and_in_a_view_it_begins_anew(tmp_path):
    (tmp_path / "script.py").write_text(RESUMING)
    command = Command(sys.executable, "script.py", folder=str(tmp_path))
    request = replace(runs.request(command), scratch=True)
    for _ in range(2):
        assert "starts at 0" in run_script(request).output
    since = time.time() - 0.02
    outside = replace(request, scratch=False)
    assert "starts at 0" in run_script(outside).output
    looking = replace(outside.specification, reads_between=(since, time.time()))
    again = run_script(replace(outside, specification=looking))
    assert "starts at 30" in again.output
    assert (again.state, again.read) == (TrialState.COMPLETE, ("last.txt",))


def test_scripts_in_shared_memory_and_writes_beside_every_folder(tmp_path):
    text = """
        import os, pathlib
        pathlib.Path("here").write_text("1")
        pathlib.Path("old").write_text("22")
        for name in ("/gpuadvisor-test", "/proc/sys/gpuadvisor-test", "/sys/gpuadvisor-test"):
            try:
                open(name, "w")
                print("written", name)
            except OSError:
                print("refused")
        """
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        (folder / "old").write_text("1")
        outcome = run_in_view(folder, text)
        assert sorted(path.name for path in folder.iterdir()) == ["old", "script.py"]
        assert (folder / "old").read_text() == "1"
    assert outcome.output.split() == ["refused"] * 3
    assert {name: file.size for name, file in outcome.written.items()} == {"here": 1, "old": 2}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
def test_where_the_disk_can_hold_no_layer_memory_does(tmp_path):
    """As in a container, whose own file system is an overlay: the kernel stacks no two."""
    for name in ("lower/work", "upper", "work", "merged"):
        (tmp_path / name).mkdir(parents=True)
    work = tmp_path / "merged" / "work"
    (tmp_path / "lower" / "work" / "old").write_text("1")
    (tmp_path / "lower" / "work" / "script.py").write_text(
        "open('old', 'w').write('22')\nopen('new', 'w').write('333')"
    )
    run = (
        "import sys\nfrom dataclasses import replace\n"
        "from gpuadvisor.collectors.script.request import Command\n"
        "from gpuadvisor.collectors.script.runner import run_script\n"
        "from tests.integration import runs\n"
        f"command = Command(sys.executable, 'script.py', folder={str(work)!r})\n"
        "outcome = run_script(replace(runs.request(command), scratch=True))\n"
        "print(sorted((name, file.size) for name, file in outcome.written.items()))"
    )
    layers = "lowerdir=lower,upperdir=upper,workdir=work"
    shell = (
        f"cd {tmp_path} && mount -t overlay -o {layers} overlay merged && cd - >/dev/null &&"
        f' TMPDIR={work} {sys.executable} -c "$1" && ls {work} && cat {work}/old'
    )
    command = ["unshare", "-m", "sh", "-c", shell, "sh", run]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout == "[('new', 3), ('old', 2)]\nold\nscript.py\n1", done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
def test_disks_that_come_and_go_meanwhile_are_no_hindrance(tmp_path):
    """Views are entered one after the other while somebody mounts and unmounts all the time."""
    over = threading.Event()

    def come_and_go():
        for number in itertools.count():
            disk = tmp_path / f"{number}" / "disk"
            disk.mkdir(parents=True)
            subprocess.run(["mount", "-t", "tmpfs", "none", disk], check=True)
            subprocess.run(["umount", "-l", disk], check=True)
            disk.rmdir()
            disk.parent.rmdir()
            if over.is_set():
                return

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(5):
            with run_folder() as run, scratch(run) as view:
                done = subprocess.run(view.wrapper, capture_output=True, text=True, check=False)
                assert (done.returncode, done.stderr) == (0, "")
                view.check(ended=True)
    finally:
        over.set()
        other.join()
