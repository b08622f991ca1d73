"""Which GPUs there are, by the real nvidia-ml-py on a fake driver's library."""

import pytest

from gpuadvisor.collectors import devices
from gpuadvisor.collectors.devices import cores, cpu_device, memory_bytes

IMPORT = "from gpuadvisor.collectors.devices import inventory, list_gpus"
FIRST, SECOND = (f"GPU-fa4e000{i}-0000-4000-8000-00000000000{i}" for i in (0, 1))


def test_a_gpu_is_described_as_the_driver_has_it(ask):
    gpu = ask(IMPORT, "list_gpus()[1]", FAKE_NVML_MODELS="h100,t4")
    assert gpu.pop("cores") >= 1
    assert gpu == {
        "kind": "cuda",
        "index": 1,
        "name": "Tesla T4",
        "uuid": SECOND,
        "memory_bytes": 16106127360,
        "compute_capability": [7, 5],
    }


def test_the_driver_and_its_cuda_are_known(ask):
    found = ask(IMPORT, "inventory()")
    assert found["driver"] == "580.95.05"
    assert found["driver_cuda"] == [13, 0]
    assert found["reason"] is None


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"FAKE_NVML_FAULTS": "nvmlInitWithFlags=12"}, "no NVIDIA driver is installed"),
        ({"FAKE_NVML_FAULTS": "nvmlInitWithFlags=9"}, "not loaded"),
        ({"FAKE_NVML_FAULTS": "nvmlInitWithFlags=4"}, "no permission"),
        ({"FAKE_NVML_FAULTS": "nvmlInitWithFlags=18"}, "upgraded while loaded"),
        ({"FAKE_NVML_FAULTS": "nvmlInitWithFlags=999"}, "NVML failed"),
        ({"FAKE_NVML_FAULTS": "nvmlDeviceGetCount_v2=13"}, "too old"),
        ({"FAKE_NVML_FAULTS": "nvmlDeviceGetHandleByIndex_v2=15"}, "the GPU is lost"),
        ({"FAKE_NVML_MODELS": ""}, "sees no GPU"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' hides every GPU"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-8a0c"}, "CUDA_VISIBLE_DEVICES='MIG-8a0c'"),
    ],
)
def test_no_gpu_is_an_answer_with_a_reason(ask, environ, words):
    gpus, reason = ask(IMPORT, "[list_gpus(), inventory().reason]", **environ)
    assert gpus == []
    assert words in reason


def test_a_library_that_cannot_be_loaded_is_no_driver(ask, tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    reason = ask(IMPORT, "inventory().reason", LD_LIBRARY_PATH=str(tmp_path))
    assert "no NVIDIA driver is installed" in reason


def test_without_nvidia_ml_py_the_reason_says_so(ask):
    hidden = f"import sys\nsys.modules['pynvml'] = None\n{IMPORT}"
    assert "nvidia-ml-py is not installed" in ask(hidden, "inventory().reason")


def test_a_driver_that_never_answers_is_given_up(ask):
    impatient = (
        f"{IMPORT}\nfrom gpuadvisor.collectors.nvml import library\nlibrary.STEP_TIMEOUT_S = 0.1"
    )
    reasons = ask(
        impatient, "[inventory().reason for _ in 'ab']", FAKE_NVML_HANG="nvmlInitWithFlags"
    )
    assert "did not answer within 0.1 s" in reasons[0]
    assert "an earlier query still waits" in reasons[1]


def test_a_driver_that_wakes_its_gpus_one_after_the_other_has_the_time_that_it_takes(ask):
    patient = (
        f"{IMPORT}\nfrom gpuadvisor.collectors.nvml import library\nlibrary.STEP_TIMEOUT_S = 0.6"
    )
    waking = {"FAKE_NVML_DELAY_US": "nvmlDeviceGetHandleByIndex_v2=300000"}
    models = {"FAKE_NVML_MODELS": "h100,h100,h100,h100"}
    assert ask(patient, "len(inventory().gpus)", **waking, **models) == 4


def test_a_lost_gpu_leaves_the_others_and_a_note(ask):
    found = ask(IMPORT, "inventory()", FAKE_NVML_FAULTS="nvmlDeviceGetName@0=15")
    assert [gpu["index"] for gpu in found["gpus"]] == [1]
    assert "GPU 0 cannot be used" in found["notes"][0]


def test_a_property_that_is_not_supported_is_unknown(ask):
    faults = "nvmlDeviceGetMemoryInfo=3,nvmlDeviceGetCudaComputeCapability=13"
    gpu = ask(IMPORT, "list_gpus()[0]", FAKE_NVML_FAULTS=faults)
    assert gpu["memory_bytes"] is None
    assert gpu["compute_capability"] is None


def test_visible_devices_reorders_the_gpus(ask):
    gpus = ask(IMPORT, "list_gpus()", CUDA_VISIBLE_DEVICES=f"{SECOND},GPU-fa4e0000")
    assert [gpu["index"] for gpu in gpus] == [1, 0]


ENVIRONMENTS = {
    "numbers": {"CUDA_VISIBLE_DEVICES": "1"},
    "by-bus": {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    "uuid": {"CUDA_VISIBLE_DEVICES": FIRST},
    "all": {},
}


@pytest.mark.parametrize(("models", "noted"), [("h100,t4", ["numbers"]), ("h100,h100", [])])
def test_numbers_of_different_models_are_ambiguous(ask, models, noted):
    expression = f"{{name: inventory(e).notes for name, e in {ENVIRONMENTS}.items()}}"
    notes = ask(IMPORT, expression, FAKE_NVML_MODELS=models)
    assert [name for name, note in notes.items() if note] == noted


@pytest.mark.parametrize(
    ("value", "selected"),
    [
        ("0,1", (0, 1)),
        ("1", (1,)),
        (" 1 , 0", (1, 0)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0,-1,1", (0,)),
        ("0,7,1", (0,)),
        ("1,1", ()),
        ("1gpu", (1,)),
        (FIRST, (0,)),
        ("GPU-fa4e0001,GPU-fa4e0000", (1, 0)),
        ("GPU-fa4e000", ()),  # names two
        ("GPU-fa4e0000,GPU-no,GPU-fa4e0001", (0,)),
        ("GPU-fa4e0000,GPU-fa4e0000-0000", ()),  # the same one twice
        ("GPU-fa4e0000,1", (0,)),
        ("0,GPU-fa4e0001", (0,)),
        ("MIG-11,MIG-22", ("MIG-11",)),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(value, selected):
    assert devices.select_visible([FIRST, SECOND], value) == selected


def test_the_cpu_has_a_name_cores_and_memory():
    cpu = cpu_device()
    assert not cpu.is_gpu
    assert cpu.name
    assert cpu.cores >= 1
    assert cpu.memory_bytes is not None and cpu.memory_bytes > 2**20


GIB = 2**30


@pytest.mark.parametrize(
    ("groups", "files", "memory"),
    [
        ("0::/", {"cpu.max": "100000 100000", "memory.max": str(GIB)}, GIB),
        ("0::/a/b", {"cpu.max": "max 100000", "a/cpu.max": "50000 100000"}, None),
        ("0::/a", {"a/memory.max": str(GIB), "cpu.max": "150000 100000"}, GIB),
        (
            "3:cpu,cpuacct:/docker/1\n2:memory:/docker/1",
            {
                "cpu/cpu.cfs_quota_us": "100000",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": str(GIB),
            },
            GIB,
        ),
    ],
    ids=["container", "limit-of-an-ancestor", "share-of-a-core", "version-1"],
)
def test_control_groups_limit_cores_to_one(tmp_path, groups, files, memory):
    tree = {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}
    for path, text in tree.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert cores(tmp_path) == 1
    assert memory_bytes(tmp_path) == (memory or memory_bytes(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("files", "periods"),
    [
        (
            {"cpu.max": "400000 100000", "cpu.stat": "usage_usec 9\nnr_periods 70\nnr_throttled 5"},
            (70, 5),
        ),
        (
            {"cpu.max": "max 100000", "cpu.stat": "usage_usec 9\nnr_periods 70\nnr_throttled 5"},
            None,
        ),
        ({"cpu.max": "400000 100000"}, None),
        ({"cpu.max": "400000 100000", "cpu.stat": "nr_periods 70\nnr_throttled many"}, None),
        (
            {
                "cpu.max": "400000 100000",
                "cpu.stat": "nr_periods 70\nnr_throttled 5",
                "a/cpu.max": "200000 100000",
                "a/cpu.stat": "nr_periods 60\nnr_throttled 50",
            },
            (60, 50),
        ),
    ],
    ids=["limited", "no-limit", "not-counted", "damaged", "two"],
)
def test_periods_in_which_a_limit_was_used_up(tmp_path, files, periods):
    tree = {"proc/self/cgroup": "0::/a", **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}
    for path, text in tree.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert devices.periods_of_quota(tmp_path) == periods


def test_without_control_groups_the_affinity_counts(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n1:name=systemd:/\n2:cpu:/\n")
    assert cores(tmp_path) == cores(tmp_path / "nowhere")
