"""The processes on the GPUs: who they are, and how the driver's older calls list them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gpuadvisor.collectors.nvml.gpu_processes import (
    GpuProcesses,
    ProcessFacts,
    cuda_processes,
    in_their_place,
)

FIRST = "GPU-fa4e0000-0000-4000-8000-000000000000"
LISTED = """
sampler = start()
result = poll(sampler).processes
"""
CALL = "nvmlDeviceGet{}RunningProcesses{}"


def faults(*versions, code=13):
    kinds = ("Compute", "Graphics")
    return ",".join(
        f"{CALL.format(kind, version)}={code}" for kind in kinds for version in versions
    )


@pytest.mark.parametrize("missing", [[], ["_v3"], ["_v3", "_v2"]])
def test_every_form_of_the_call_lists_them(play, missing):
    found = play(
        LISTED,
        FAKE_NVML_MODELS="h100",
        FAKE_NVML_PIDS=f"{os.getpid()}:2048,99999999:none",
        FAKE_NVML_GRAPHICS_PIDS=f"1,{os.getpid()}",
        FAKE_NVML_FAULTS=faults(*missing),
    )
    assert [(p["pid"], p["kind"], p["memory_bytes"]) for p in found] == [
        (os.getpid(), "compute", 2 * 2**30),
        (99999999, "compute", None),
        (1, "graphics", 2**30),
    ]
    mine, gone, _ = found
    assert mine["gpu"] == FIRST
    assert mine["name"] == Path("/proc/self/comm").read_text("utf-8").strip()
    words = Path("/proc/self/cmdline").read_text("utf-8").split("\0")
    assert mine["command"].startswith(words[0])
    assert words[1] in mine["command"]
    assert mine["parent_pid"] == os.getppid()
    assert mine["host_memory_bytes"] > 2**20
    assert mine["started_s"] > 1e9
    assert (gone["name"], gone["user"], gone["command"]) == (None, None, None)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"FAKE_NVML_PROCESS_UTILIZATION": "71=40"}, [40, 0]),
        ({"FAKE_NVML_PROCESS_UTILIZATION": "71=40~60"}, [0, 0]),  # it worked a minute ago
        ({}, [0, 0]),
    ],
)
def test_utilization_is_that_of_each_process_and_zero_while_idle(play, setting, expected):
    found = play(LISTED, FAKE_NVML_MODELS="h100", FAKE_NVML_PIDS="71,72", **setting)
    assert [process["sm_utilization_pct"] for process in found] == expected


@pytest.mark.parametrize("code", [3, 4, 13])
def test_unknown_utilization_is_not_idle(play, code):
    fault = f"nvmlDeviceGetProcessUtilization={code}"
    found = play(LISTED, FAKE_NVML_MODELS="h100", FAKE_NVML_PIDS="71", FAKE_NVML_FAULTS=fault)
    assert [process["sm_utilization_pct"] for process in found] == [None]


@pytest.mark.parametrize("code", [3, 4, 999])
def test_processes_that_are_not_known_are_not_none(play, code):
    no_list = faults("_v3", "_v2", "", code=code)
    assert play(LISTED, FAKE_NVML_PIDS="71", FAKE_NVML_FAULTS=no_list) is None
    assert play(LISTED, FAKE_NVML_FAULTS="") == []


@pytest.mark.parametrize("failing", [CALL.format("{}", "_v3"), CALL.format("Compute", "_v3")])
def test_processes_of_a_gpu_that_fails_are_not_none_while_others_tell_theirs(play, failing):
    """For a while they are those of before; then nobody knows, which is said of that GPU alone."""
    failing = ",".join(f"{failing.format(kind)}@0=10" for kind in ("Compute", "Graphics"))
    program = f"""
from gpuadvisor.collectors.nvml import gpu_processes
scene(MODELS="h100,h100", PIDS="71")
sampler = start()
def told(passed_s=1):
    frame = poll(sampler, passed_s)
    untold = [
        (uuid, sample.unavailable["processes"])
        for uuid, sample in frame.samples.items() if "processes" in sample.unavailable
    ]
    return frame.processes, untold
result = [told()]
scene(MODELS="h100,h100", PIDS="71", FAULTS="{failing}")
result += [told(6)]
gpu_processes.LISTING_HOLDS_S = 0.0
result += [told(6), told(1), told(6)]
scene(MODELS="h100,h100", PIDS="71")
result += [told(6)]
"""
    first, held, lost, between, still, again = play(program)
    assert [len(found) for found, _ in (first, held, again)] == [2, 2, 2]
    assert [untold for _, untold in (first, held, again)] == [[], [], []]
    for (process,), _ in (lost, still):
        assert process["gpu"] != FIRST
    assert between[0] is None  # they were not asked for
    assert lost[1] == between[1] == still[1]
    ((uuid, absence),) = lost[1]
    assert uuid == FIRST
    assert (absence["state"], absence["reason"]) == (
        "stale",
        "the driver does not list the processes",
    )


def test_they_are_listed_twice_at_once_and_then_every_few_seconds(play):
    """The second list is the first that tells CPU time: who asks once has it after a second."""
    program = """
sampler = start()
result = [poll(sampler).processes is not None for _ in range(11)]
"""
    assert play(program) == [True, *[True, *[False] * 4] * 2]


@pytest.fixture
def proc(tmp_path):
    """A /proc of a container with its own process numbers, in which this process is itself."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026532999]")
    (tmp_path / f"{os.getpid()}/fd").mkdir(parents=True)
    return tmp_path


def test_a_number_that_is_not_seen_in_a_container_is_the_hosts(proc):
    process = ProcessFacts(proc).describe(FIRST, 99999999, "compute", 2**30, None)
    assert (process.is_host_pid, process.name) == (True, None)


def test_a_process_without_a_gpu_open_is_not_the_one_that_the_host_means(proc):
    process = ProcessFacts(proc).describe(FIRST, os.getpid(), "compute", 2**30, None)
    assert (process.is_host_pid, process.name, process.command) == (True, None, None)


def test_a_process_with_a_gpu_open_is_itself(proc):
    (proc / str(os.getpid()) / "fd/5").symlink_to("/dev/nvidia0")
    process = ProcessFacts(proc).describe(FIRST, os.getpid(), "compute", 2**30, 12.0)
    assert (process.is_host_pid, process.sm_utilization_pct) == (False, 12.0)
    assert process.name == Path("/proc/self/comm").read_text("utf-8").strip()


def used_until(process, more_s):
    """Return once it has used so much CPU time more, whoever else uses the cores."""
    begin_s = sum(process.cpu_times()[:2])
    deadline = time.monotonic() + 60
    while sum(process.cpu_times()[:2]) - begin_s < more_s:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_cpu_time_of_a_process_is_the_same_on_every_gpu(tmp_path):
    """It was asked for again for each GPU, and so said 0 % on all but the first."""
    facts = ProcessFacts()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        seen = []
        for _ in range(2):
            used_until(psutil.Process(busy.pid), 0.2)
            seen = [facts.describe(gpu, busy.pid, "compute", 2**20, None) for gpu in "abc"]
            facts.forget_others({busy.pid})
        os.kill(busy.pid, signal.SIGKILL)
    assert len({(each.cpu_pct, each.host_memory_bytes) for each in seen}) == 1
    assert 0 < seen[0].cpu_pct < 110
    assert seen[0].host_memory_bytes > 2**20
    gone = facts.describe("a", busy.pid, "compute", None, None)
    assert (gone.name, gone.cpu_pct) == (None, None)


ID = "0123456789ab" + "c" * 52


@pytest.mark.parametrize(
    ("group", "container"),
    [
        (f"0::/system.slice/docker-{ID}.scope", "0123456789ab"),
        (f"12:cpu:/docker/{ID}\n0::/", "0123456789ab"),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope", "0123456789ab"),
        (f"0::/machine.slice/libpod-{ID}.scope/container", "0123456789ab"),
        ("0::/user.slice/user-1000.slice/session-2.scope", None),
    ],
)
def test_the_container_is_read_from_the_control_group(tmp_path, group, container):
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026531836]")
    (tmp_path / str(os.getpid())).mkdir()
    (tmp_path / f"{os.getpid()}/cgroup").write_text(group)
    process = ProcessFacts(tmp_path).describe(FIRST, os.getpid(), "compute", None, None)
    assert process.container == container


def test_the_cpu_time_of_children_without_gpu_memory_is_known_and_who_started_it(tmp_path):
    """As of a DataLoader's workers, which the driver does not list."""
    spin = "import subprocess, sys; w = subprocess.Popen([sys.executable, '-c', 'while 1: 0'])"
    given = {**os.environ, "GPUADVISOR_SPECIFICATION": "{}"}
    parent = [sys.executable, "-c", f"{spin}; print('on', flush=True); w.wait()"]
    with subprocess.Popen(parent, stdout=subprocess.PIPE, env=given, start_new_session=True) as p:
        try:
            p.stdout.readline()
            facts = ProcessFacts()
            first = facts.describe(FIRST, p.pid, "compute", 1, None)
            facts.forget_others({p.pid})
            (child,) = psutil.Process(p.pid).children()
            used_until(child, 0.2)
            second = facts.describe(FIRST, p.pid, "compute", 1, None)
        finally:
            os.killpg(p.pid, signal.SIGKILL)
    assert (first.children_cpu_pct, second.children_cpu_pct > 0) == (None, True)
    assert second.cpu_pct < second.children_cpu_pct
    assert second.by_gpuadvisor is True
    assert ProcessFacts().describe(FIRST, os.getpid(), "compute", 1, None).by_gpuadvisor is False


def test_the_cpu_time_of_children_that_have_ended_since_is_known(tmp_path):
    """As of the workers of an epoch that is shorter than the time between two lists."""
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    parent = (
        "import subprocess, sys\nfor line in sys.stdin:\n"
        f" subprocess.run([sys.executable, '-c', {spin!r}])\n print('done', flush=True)"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", parent], **pipes) as p:
        facts, told = ProcessFacts(), []
        for _ in range(3):
            told.append(facts.describe(FIRST, p.pid, "compute", 1, None).children_cpu_pct)
            facts.forget_others({p.pid})
            if len(told) > 1:
                time.sleep(0.01)  # some time must have passed, whatever was used in it
                continue
            p.stdin.write("\n")
            p.stdin.flush()
            p.stdout.readline()
        p.stdin.close()
    assert told[0] is None
    assert told[1] > 0  # no child lives any more
    assert told[2] == 0  # and none has lived since


def proc_of(folder, **opened):
    """A folder like /proc, with the device files that each process has open."""
    for name, files in opened.items():
        (folder / name.removeprefix("p") / "fd").mkdir(parents=True)
        for number, file in enumerate(files):
            (folder / name.removeprefix("p") / "fd" / str(number)).symlink_to(file)
    (folder / "self").mkdir()
    return folder


def test_cuda_processes_of_a_container_are_known_by_the_files_that_they_have_open(tmp_path):
    proc = proc_of(
        tmp_path,
        p7=["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia3"],
        p8=["/dev/nvidiactl", "/dev/nvidia3"],  # asks NVML, as we do
        p9=["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/null"],
        p10=[],
    )
    assert cuda_processes(proc) == {7: frozenset({3}), 9: frozenset({0, 1})}


@pytest.mark.parametrize(
    ("listed", "unknown", "here", "expected"),
    [
        ([], [], [7, 8], {7: None, 8: None}),  # the driver lists none in a container
        ([4242], [4242], [7], {7: 4242}),
        ([4242, 7], [4242], [8], {8: 4242}),
        ([4242, 4243], [4242, 4243], [7], {}),  # either may be it, and the other another's
        ([4242], [4242], [7, 8], {}),
        ([7], [], [8], {}),
        ([], [], [], {}),
    ],
)
def test_only_what_can_be_no_other_process_takes_its_place(listed, unknown, here, expected):
    assert in_their_place(listed, unknown, here) == expected


def test_in_a_container_of_its_own_numbers_a_process_is_named():
    """The host's number, of which nothing is known here, is that of the only one that computes."""

    class Nvml:
        NVMLError = OSError
        nvmlDeviceGetMinorNumber = staticmethod(lambda handle: 3)  # noqa: N815 - NVML's name

    contained = GpuProcesses()
    facts = contained._facts = ProcessFacts()
    facts._has_host_numbers = False
    ours = contained._ours(
        Nvml, None, {99999999: ("compute", 5)}, {os.getpid(): frozenset({3})}, gpus=2
    )
    assert ours == {os.getpid(): 99999999}
    elsewhere = {os.getpid(): frozenset({1})}
    assert contained._ours(Nvml, None, {99999999: ("compute", 5)}, elsewhere, gpus=2) == {}
