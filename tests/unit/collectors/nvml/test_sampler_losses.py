"""GPUs and drivers that come and go under the sampler, on a fake driver's library."""

import shutil

import pytest

from gpuadvisor.domain.metrics import GPU_METRICS

FIRST, SECOND, THIRD = (f"GPU-fa4e000{i}-0000-4000-8000-00000000000{i}" for i in (0, 1, 2))
INSTANCES = [f"MIG-fa4e0000-0000-4000-8000-{part}00000000000" for part in (1, 2)]


def states(frame, uuid):
    return {absence["state"] for absence in frame["samples"][uuid]["unavailable"].values()}


def test_a_gpu_lost_in_the_middle_of_a_sweep_is_lost_and_the_others_go_on(play):
    program = """
scene(MODELS="h100,h100,h100")
sampler = start()
poll(sampler)
scene(MODELS="h100,h100,h100", LOST_AFTER="*@1=10")
result = [poll(sampler), poll(sampler), poll(sampler, 0.1, full=False)]
"""
    first, second, fast = play(program)
    assert states(first, SECOND) == {"lost"}
    unavailable = first["samples"][SECOND]["unavailable"]
    assert len(unavailable) == len(GPU_METRICS)
    assert first["samples"][SECOND]["values"] == {}
    assert unavailable["power_w"]["since_s"] == 1e9 + 1
    assert "fell off the bus" in unavailable["power_w"]["reason"]
    assert second["samples"][SECOND]["unavailable"] == unavailable
    assert second["gpus"] is None
    assert set(fast["samples"]) == {FIRST, THIRD}
    for frame in (first, second, fast):
        assert frame["problem"] is None
        assert frame["samples"][THIRD]["values"]["power_w"] == 70.0


@pytest.mark.parametrize("code", [15, 16, 28])
def test_a_lost_gpu_is_looked_for_and_comes_back(play, code):
    program = f"""
scene(MODELS="h100,h100")
sampler = start()
poll(sampler)
scene(MODELS="h100,h100", FAULTS="*@1={code}")
frames = [poll(sampler) for _ in range(6)]
scene(MODELS="h100,h100")
result = [frames[0], frames[-1], *(poll(sampler, 1) for _ in range(9))]
"""
    first, last, *later = play(program)
    assert states(first, SECOND) == states(last, SECOND) == {"lost"}
    assert last["samples"][SECOND]["unavailable"]["power_w"]["since_s"] == 1e9 + 1
    assert later[-1]["samples"][SECOND]["values"]["power_w"] == 70.0
    assert "lost" not in states(later[-1], SECOND)


def test_a_gpu_that_is_pulled_leaves_the_list_and_one_that_is_added_joins_it(play):
    program = """
scene(MODELS="h100#0,h100#1,h100#2")
sampler = start()
poll(sampler)
scene(MODELS="h100#0,h100#2")
result = [poll(sampler), poll(sampler), poll(sampler)]
scene(MODELS="h100#0,h100#2,t4#1")
result += [poll(sampler, 11), poll(sampler)]
"""
    first, pulled, usual, added, last = play(program)
    assert states(first, SECOND) == {"lost"}
    assert [(gpu["uuid"], gpu["index"]) for gpu in pulled["gpus"]] == [(FIRST, 0), (THIRD, 1)]
    assert set(pulled["samples"]) == set(usual["samples"]) == {FIRST, THIRD}
    assert usual["gpus"] is None
    assert [gpu["uuid"] for gpu in added["gpus"]] == [FIRST, THIRD, SECOND]
    assert last["samples"][SECOND]["values"]["power_w"] == 7.0
    assert all(frame["problem"] is None for frame in (first, pulled, usual, added, last))


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        ("FAULTS='nvmlInitWithFlags=18'", "upgraded while loaded"),
        ("FAULTS='nvmlInitWithFlags=9'", "not loaded"),
        ("FAULTS='nvmlInitWithFlags=4'", "no permission"),
        ("FAULTS='nvmlInitWithFlags=999'", "Unknown Error"),
        ("FAULTS='nvmlDeviceGetCount_v2=13'", "too old"),
        ("MODELS=''", "sees none"),
    ],
)
def test_no_gpu_is_a_problem_in_words_until_there_is_one(play, scene, words):
    program = f"""
scene({scene})
sampler = start()
result = [poll(sampler), poll(sampler, 0.1, full=False), poll(sampler)]
scene()
result += [poll(sampler, 61)]
"""
    first, _, later, last = play(program)
    for frame in (first, later):
        assert words in frame["problem"]
        assert frame["samples"] == {}
    assert last["problem"] is None
    assert len(last["gpus"]) == len(last["samples"]) == 2


def test_without_a_library_or_nvidia_ml_py_nothing_is_read_and_it_is_said(play, tmp_path):
    program = """
sampler = start()
result = [poll(sampler).problem, poll(sampler, 0.1, full=False).problem]
"""
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    for problem in play(program, LD_LIBRARY_PATH=str(tmp_path)):
        assert "no NVIDIA driver is installed" in problem
    hidden = "import sys\nsys.modules['pynvml'] = None\n"
    assert "nvidia-ml-py is not installed" in play(hidden + program)[0]


@pytest.mark.parametrize("code", [1, 9, 18])
def test_a_driver_upgraded_under_the_sampler_is_started_again(play, fake_nvml, tmp_path, code):
    """The new library is loaded, too: the old one does not talk to the new kernel module."""
    library = tmp_path / "libnvidia-ml.so.1"
    shutil.copy(fake_nvml / library.name, library)
    program = f"""
import shutil
scene(MODELS="h100")
sampler = start()
poll(sampler)
scene(MODELS="h100", FAULTS="*={code}")
shutil.copy({str(library)!r}, "{library}.new")
os.replace("{library}.new", {str(library)!r})
result = [poll(sampler, 1), poll(sampler, 0.1, full=False), poll(sampler, 0.4)]
scene(MODELS="h100")
result += [poll(sampler, 0.1), poll(sampler, 60)]
maps = Path("/proc/self/maps").read_text()
result += ["libnvidia-ml.so.1" in maps, "libnvidia-ml.so.1 (deleted)" in maps]
"""
    lost, fast, later, waiting, back, is_loaded, is_old_loaded = play(
        program, LD_LIBRARY_PATH=str(tmp_path)
    )
    for frame in (lost, fast, later, waiting):
        assert frame["problem"].startswith("The GPUs cannot be read: ")
        assert all(sample["values"] == {} for sample in frame["samples"].values())
    assert lost["problem"] == later["problem"]
    assert lost["samples"][FIRST]["unavailable"]["power_w"]["state"] == "stale"
    assert lost["samples"][FIRST]["unavailable"]["power_w"]["since_s"] == 1e9 + 1
    assert lost["samples"][FIRST]["unavailable"]["fan_pct"]["state"] == "not_supported"
    assert back["problem"] is None
    assert back["samples"][FIRST]["values"]["power_w"] == 70.0
    assert states(back, FIRST) == {"not_supported"}
    assert (is_loaded, is_old_loaded) == (True, False)


def test_mig_instances_are_gpus_of_their_own_with_what_the_driver_has_for_them(play):
    program = """
scene(MODELS="h100,t4", MIG="@0=2", PIDS="1")
sampler = start()
first = poll(sampler)
scene(MODELS="h100,t4", MIG="@0=1")
result = [first, poll(sampler, 60)]
"""
    first, after = play(program)
    assert [gpu["uuid"] for gpu in first["gpus"]] == [FIRST, *INSTANCES, SECOND]
    instance = first["gpus"][1]
    assert (instance["parent_uuid"], instance["index"]) == (FIRST, 0)
    assert instance["name"] == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    sample = first["samples"][INSTANCES[0]]
    memory = set(sample["values"])
    assert memory == {f"memory_{part}_bytes" for part in ("used", "free", "reserved", "total")}
    assert sample["values"]["memory_total_bytes"] == 85520809984 // 8
    assert len(sample["unavailable"]) == len(GPU_METRICS) - len(memory)
    assert states(first, INSTANCES[0]) == {"not_supported"}
    assert [process["gpu"] for process in first["processes"]] == [*INSTANCES, SECOND]
    assert [gpu["uuid"] for gpu in after["gpus"]] == [FIRST, INSTANCES[0], SECOND]


def test_each_xid_error_is_an_event_of_its_own(play):
    program = """
scene(MODELS="h100,h100", XIDS="0:31,1:79,0:31")
sampler = start()
frames, end = [poll(sampler)], time.monotonic() + 60
while sum(len(frame.events) for frame in frames) < 3:
    assert time.monotonic() < end
    frames.append(poll(sampler))
scene(MODELS="h100,h100", XIDS="0:31,1:79,0:31,1:4711")
while sum(len(frame.events) for frame in frames) < 4:
    assert time.monotonic() < end
    frames.append(poll(sampler))
time.sleep(0.1)
frames.append(poll(sampler))
result = [[event, event.identity] for frame in frames for event in frame.events]
sampler.close()
"""
    found = play(program)
    events = [event for event, _ in found]
    assert [(e["gpu"], e["data"]["xid"], e["severity"]) for e in events] == [
        (FIRST, 31, "error"),
        (SECOND, 79, "error"),
        (FIRST, 31, "error"),
        (SECOND, 4711, "warning"),
    ]
    assert len({tuple(identity) for _, identity in found}) == 4
    assert all(e["kind"] == "xid" and e["ended_s"] == e["began_s"] for e in events)
    assert "GPU 1 reported Xid 79, the GPU fell off the bus" in events[1]["message"]


@pytest.mark.parametrize("code", [3, 4, 13])
def test_where_xid_errors_cannot_be_watched_all_else_goes_on(play, code):
    faults = (
        f"nvmlEventSetCreate={code},nvmlDeviceRegisterEvents={code}",
        f"nvmlDeviceRegisterEvents={code}",
        f"nvmlEventSetWait_v2={code}",
    )
    program = f"""
result = []
for faults in {faults}:
    scene(MODELS="h100", XIDS="0:31", FAULTS=faults)
    sampler = start()
    poll(sampler)
    time.sleep(0.05)
    result.append(poll(sampler))
    sampler.close()
"""
    for frame in play(program):
        assert frame["events"] == []
        assert (frame["problem"], states(frame, FIRST)) == (None, {"not_supported"})


def test_closing_frees_what_the_driver_lent(play):
    program = """
import ctypes
scene(MODELS="h100,t4")
sampler = start()
poll(sampler)
fake = ctypes.CDLL("libnvidia-ml.so.1")
result = [fake.fakeGpmSamples()]
sampler.close()
result += [fake.fakeGpmSamples(), fake.nvmlShutdown()]
"""
    assert play(program) == [2, 0, 1]  # the last: not initialised any more


def test_a_gpu_that_was_lost_before_it_was_seen_is_lost_and_not_absent(play):
    program = """
scene(MODELS="h100,h100", FAULTS="*@1=15")
sampler = start()
result = [poll(sampler)]
scene(MODELS="h100,h100")
result += [poll(sampler, 2) for _ in range(9)]
"""
    first, *_, last = play(program)
    assert [(gpu["uuid"], gpu["index"]) for gpu in first["gpus"]] == [
        (FIRST, 0),
        ("GPU-lost-1", 1),
    ]
    assert states(first, "GPU-lost-1") == {"lost"}
    assert last["samples"][SECOND]["values"]["power_w"] == 70.0
    assert "GPU-lost-1" not in last["samples"]


def test_another_sampler_tells_who_a_lost_gpu_is(play):
    program = """
from gpuadvisor.collectors.nvml.sampler import Sampler
from gpuadvisor.domain.telemetry import Gpu
scene(MODELS="h100#0,h100#1", FAULTS="*@1=15")
first, second = (Gpu(f"GPU-fa4e000{i}-0000-4000-8000-00000000000{i}", i, "H100") for i in (0, 1))
moved = [Gpu(second.uuid, 0, "H100"), Gpu(first.uuid, 1, "H100")]
result = [Sampler(known=each).poll(full=True) for each in ([first, second], moved)]
"""
    told, renumbered = play(program)
    assert [gpu["uuid"] for gpu in told["gpus"]] == [FIRST, SECOND]
    assert states(told, SECOND) == {"lost"}
    # The one that had the number answers under another.
    assert [gpu["uuid"] for gpu in renumbered["gpus"]] == [FIRST, "GPU-lost-1"]
