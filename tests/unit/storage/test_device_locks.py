"""The lock on a device: of the machine, whoever holds it, and free however its holder ends."""

import os
import pwd
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager, nullcontext
from tempfile import TemporaryDirectory

import pytest

from gpuadvisor.domain.device import Device
from gpuadvisor.errors import RefusedError
from gpuadvisor.storage.locks import PREFIX, Held, device_locked
from gpuadvisor.tuning.preparation import reserved
from tests.disks import full_disk

HOLD = """
import os, sys
from gpuadvisor.storage.locks import device_locked
device, before, after = sys.argv[1:]
exec(before)
with device_locked(device):
    exec(after)
    print("held", flush=True)
    sys.stdin.read()
"""
NOBODY = 65534
"""A user that every Linux has."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs abstract sockets")


@pytest.fixture
def device(tmp_path, monkeypatch):
    """A device that nobody else has, and a home of our own."""
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "ours"))
    return f"GPU-{uuid.uuid4()}"


@contextmanager
def holder(device, home, before="", after=""):
    """A process that holds the device, with a home of its own; `before` and `after` are code."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, device, before, after],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GPUADVISOR_HOME": str(home)},
    )
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def gpu(device):
    return Device("cuda", 0, "NVIDIA H100", device)


def test_two_homes_exclude_each_other(device, tmp_path):
    with holder(device, tmp_path / "theirs") as other:
        with pytest.raises(RefusedError) as refused, reserved([gpu(device)], nullcontext()):
            pass
        assert str(refused.value) == (
            f"another gpuadvisor measures on NVIDIA H100 (process {other.pid}), and two "
            "would measure each other: wait for it or stop it, or choose another GPU with "
            "CUDA_VISIBLE_DEVICES"
        )
    with reserved([gpu(device)], nullcontext()):
        pass


def test_two_holders_in_one_process_exclude_each_other(device):
    with device_locked(device), pytest.raises(Held) as refused, device_locked(device):
        pass
    assert refused.value.process == str(os.getpid())
    with device_locked(device):
        pass


def test_another_device_is_free(device, tmp_path):
    with holder(device, tmp_path / "theirs"), device_locked(f"{device}-other"):
        pass


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_named(device):
    with TemporaryDirectory() as theirs:  # not below pytest's folder, which is root's alone
        os.chown(theirs, NOBODY, NOBODY)
        _another_user_is_named(device, theirs)


def _another_user_is_named(device, theirs):
    # What Python imports may be root's alone, too.
    before = f"import gpuadvisor.tuning.preparation, encodings.ascii; os.setuid({NOBODY})"
    with holder(device, theirs, before) as other:
        with pytest.raises(RefusedError) as refused, reserved([gpu(device)], nullcontext()):
            pass
        name = pwd.getpwuid(NOBODY).pw_name
        assert f"(process {other.pid} of user {name})" in str(refused.value)
        assert "wait for it or ask its user to stop it" in str(refused.value)


def test_a_killed_holder_frees_it_at_once(device, tmp_path):
    with holder(device, tmp_path / "theirs") as other:
        other.send_signal(signal.SIGKILL)
        other.wait()
        with device_locked(device):
            pass


def test_no_child_keeps_it(device, tmp_path):
    """Neither a forked one nor a program that was started."""
    after = "if not os.fork(): import time; time.sleep(60)\n"
    after += "import subprocess; subprocess.Popen(['sleep', '60'])\n"
    after += "import subprocess; subprocess.Popen(['sleep', '60'], close_fds=False)\n"
    with holder(device, tmp_path / "theirs", "os.setsid()", after) as other:
        group = other.pid
        try:
            other.kill()
            other.wait()
            with device_locked(device):
                pass
        finally:
            os.killpg(group, signal.SIGKILL)


@contextmanager
def squatter(device, backlog=None):
    """A socket of somebody else that has the device's name."""
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(f"\0{PREFIX}{device}")
        if backlog is not None:
            taken.listen(backlog)
        yield taken


@contextmanager
def full(device):
    """One whose backlog is full, so that a blocking connection would wait for ever."""
    with squatter(device, backlog=0):
        waiting = []
        try:
            while True:
                asking = socket.socket(socket.AF_UNIX)
                waiting.append(asking)
                asking.setblocking(False)
                asking.connect(f"\0{PREFIX}{device}")
        except BlockingIOError:
            yield
        finally:
            for asking in waiting:
                asking.close()


@pytest.mark.parametrize("taken", [squatter, full], ids=["deaf", "full"])
def test_a_foreign_socket_of_that_name_is_said_at_once(device, taken):
    with taken(device):
        began = time.monotonic()
        with pytest.raises(RefusedError) as refused, reserved([gpu(device)], nullcontext()):
            pass
        assert time.monotonic() - began < 30  # and not when the other one ends
    assert "(its process is not known)" in str(refused.value)
    assert f"`ss -xap | grep gpuadvisor-device-{device}`" in str(refused.value)


def test_a_foreign_socket_that_listens_is_named(device):
    with squatter(device, backlog=1), pytest.raises(Held) as refused, device_locked(device):
        pass
    assert refused.value.process == str(os.getpid())


def test_where_sockets_do_not_reach_the_file_of_a_shared_home_does(device, tmp_path):
    """As from a container with a network namespace of its own."""
    unshared = "import ctypes; assert not ctypes.CDLL(None).unshare(0x40000000)"  # CLONE_NEWNET
    if subprocess.run([sys.executable, "-c", unshared], capture_output=True).returncode:
        pytest.skip("no network namespaces here")
    with holder(device, tmp_path / "theirs", unshared), device_locked(device):
        pass  # of another home: this is what cannot be seen
    with holder(device, tmp_path / "ours", unshared) as other:
        with pytest.raises(Held) as refused, device_locked(device):
            pass
        assert refused.value.process == str(other.pid)


def test_on_a_full_disk_it_is_held_all_the_same(device):
    with full_disk(), device_locked(device), pytest.raises(Held), device_locked(device):
        pass
