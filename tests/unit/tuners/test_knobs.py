"""What each knob offers on a device and a script, before anything is applied."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, LoaderFacts, ScriptFacts
from gpuadvisor.tuners import knobs
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knob_space import Selection, select_knobs
from gpuadvisor.tuners.knobs import _compile, bf16_autocast, cpu_threads, host_memory, load_knobs
from tests.simulation import measurement

KNOBS = load_knobs()
FOUND = {
    "triton_kernels": "train.scale@5083cf39(x: float32[32, 64], n: 2048, BLOCK: 32) -> BLOCK: 128"
}
"""What a running script may show of the knobs whose values nobody can list."""
FOLDER = Path(knobs.__file__).parent


def gpu(cc=(9, 0), cores=16):
    return Device("cuda", 0, "NVIDIA GPU", compute_capability=cc, cores=cores)


def cpu(cores=8):
    return Device("cpu", 0, "CPU", cores=cores)


def loader(**changes):
    own = {
        "batch_size": 32,
        "num_workers": 0,
        "pin_memory": False,
        "persistent_workers": False,
        "prefetch_factor": None,
    }
    return LoaderFacts(**{**own, **changes})


def facts(**changes):
    """A script that trains a convolutional network with attention on the GPU."""
    own = {
        "device": "cuda",
        "loaders": (loader(),),
        "optimizers": ("AdamW",),
        "roots": ("Net",),
        "has_convolution": True,
        "has_attention": True,
        "triton_kernels": ("fused_kernel",),
    }
    return ScriptFacts(**{**own, **changes})


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    torchs = ("OMP_NUM_THREADS", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    for name in (*torchs, "GLIBC_TUNABLES", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_compile.shutil, "which", lambda name: f"/usr/bin/{name}" if name else None)


def test_every_file_of_the_folder_is_a_knob_of_its_name():
    files = {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_")}
    assert set(KNOBS) == files


def test_knobs_come_in_the_order_that_they_ask_for():
    assert list(KNOBS) == sorted(KNOBS, key=lambda name: (KNOBS[name].order, name))


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("cpu_threads", "host_memory"),
        ("dataloader_workers", "persistent_workers"),
        ("dataloader_workers", "prefetch_factor"),
        ("dataloader_workers", "batch_memory"),
        ("bf16_autocast", "compile"),
        ("channels_last", "compile"),
        ("compile", "compile_cudagraphs"),
        ("compile_cudagraphs", "batch_size"),
        ("batch_size", "compile_max_autotune"),
    ],
)
def test_what_is_needed_or_cheaper_comes_first(first, then):
    names = list(KNOBS)
    assert names.index(first) < names.index(then)


@pytest.mark.parametrize("knob", KNOBS.values(), ids=list(KNOBS))
def test_the_contract(knob: Knob):
    assert type(knob).__name__.lower() == knob.name.replace("_", "")
    assert knob.order % 10 == 0
    places = [(gpu(), facts()), (cpu(), facts(device="cpu"))]
    possible = [place for place in places if knob.unavailable(*place) is None]
    assert possible, "it can work neither on a usual GPU nor on a CPU"
    values = [value for place in possible for value in knob.choices(*place)]
    if knob.finds:
        assert not values, "what the script shows cannot be listed"
        values = [FOUND[knob.name]]
    assert values, "it offers nothing to try"
    for value in values:
        assert knob.problem(value) is None
        assert knob.snippet(value)
        application = knob.application(value)
        assert application.applier == f"gpuadvisor.tuners.knobs.{knob.name}:KNOB"
        assert all(isinstance(text, str) for text in knob.environment(value).values())
    for other in knob.excludes:
        assert knob.name in KNOBS[other].excludes
    assert knob.refines is None or KNOBS[knob.refines].order < knob.order


def test_what_a_count_of_references_decides_is_tried_only_where_it_is_named():
    assert [name for name, knob in KNOBS.items() if knob.risk] == ["batch_memory"]
    chosen = partial(select_knobs, KNOBS, device=gpu(), facts=facts(), first=["batch_memory"])
    everything = chosen(Selection(Level.AGGRESSIVE))
    assert "batch_memory" not in everything.space
    assert "batch_memory" in chosen(Selection(only=frozenset({"batch_memory"}))).space


def test_knobs_import_only_the_standard_library():
    probe = (
        "import sys; from gpuadvisor.tuners.knobs import load_knobs; load_knobs(); "
        "print(*{name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))"
    )
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "optuna", "sqlalchemy"} & set(run.stdout.split())


@pytest.mark.parametrize(
    ("cores", "own", "choices"),
    [
        (16, 0, [15, 8, 4, 2]),
        (16, 4, [15, 8, 2, 0]),
        (64, 8, [32, 16, 4, 0]),
        (128, 0, [32, 16, 8, 4]),
        (4, 0, [3, 2, 4, 1]),
        (2, 0, [1, 2]),
        (2, 2, [1, 0]),
        (1, 0, [1]),
    ],
)
def test_choices_of_workers(cores, own, choices):
    script = facts(loaders=(loader(num_workers=own),))
    assert KNOBS["dataloader_workers"].choices(gpu(cores=cores), script) == choices


@pytest.mark.parametrize(
    "name", ["persistent_workers", "prefetch_factor", "blocking_sync", "batch_memory"]
)
def test_settings_of_workers_need_workers(name):
    knob, without = KNOBS[name], facts()
    having = facts(loaders=(loader(num_workers=4),))
    assert "dataloader_workers" in knob.missing({}, without)
    assert knob.missing({"dataloader_workers": 4}, without) is None
    assert knob.missing({}, having) is None
    assert knob.missing({"dataloader_workers": 0}, having) is not None


@pytest.mark.parametrize(
    ("name", "device", "script", "choices"),
    [
        ("prefetch_factor", gpu(), facts(loaders=(loader(prefetch_factor=4),)), [8]),
        ("prefetch_factor", gpu(), facts(loaders=(loader(prefetch_factor=2),)), [4, 8]),
        ("persistent_workers", gpu(), facts(loaders=(loader(persistent_workers=True),)), []),
        ("fused_optimizer", gpu(), facts(optimizers=("Adam",)), ["fused"]),
        ("fused_optimizer", cpu(), facts(optimizers=("SGD",)), ["fused", "foreach"]),
        ("fused_optimizer", cpu(), facts(optimizers=("RMSprop",)), ["foreach"]),
        ("sdpa_backend", gpu((9, 0)), facts(), ["cudnn", "flash", "efficient"]),
        ("sdpa_backend", gpu((8, 0)), facts(), ["efficient", "cudnn"]),
        ("sdpa_backend", gpu((7, 5)), facts(), ["efficient"]),
        ("compile", cpu(), facts(device="cpu"), ["default"]),
        ("compile", cpu(), facts(device="cpu", varying_shapes=True), ["default", "dynamic"]),
        ("compile", gpu(), facts(), ["default"]),
        ("compile_cudagraphs", gpu(), facts(), ["reduce-overhead", "cudagraphs"]),
        (
            "compile_max_autotune",
            gpu(),
            facts(),
            ["max-autotune-no-cudagraphs", "max-autotune"],
        ),
        (
            "compile_max_autotune",
            gpu(),
            facts(varying_shapes=True),
            ["max-autotune-no-cudagraphs"],
        ),
        ("batch_size", gpu(), facts(), [2, 4, 8, 16, 32, 64]),
        ("host_memory", gpu(), facts(), ["32M"]),
        ("host_memory", cpu(), facts(device="cpu"), ["32M", "all"]),
    ],
)
def test_choices(name, device, script, choices):
    assert list(KNOBS[name].choices(device, script)) == choices


@pytest.mark.parametrize(
    ("name", "device", "script", "reason"),
    [
        ("dataloader_workers", gpu(), facts(loaders=()), "no batches"),
        ("dataloader_workers", gpu(), facts(loaders=(loader(iterable=True),)), "repeat samples"),
        ("host_memory", gpu(), facts(loaders=()), "no batches"),
        ("pin_memory", cpu(), facts(device="cpu"), "no GPU"),
        ("pin_memory", gpu(), facts(device="cpu"), "computes on the CPU"),
        ("blocking_sync", cpu(), facts(device="cpu"), "no GPU"),
        ("blocking_sync", gpu(), facts(loaders=()), "no batches"),
        ("batch_memory", gpu(), facts(loaders=()), "no batches"),
        ("cpu_threads", gpu(), facts(), "on the GPU"),
        ("cpu_threads", cpu(1), facts(device="cpu", cpu_threads=1), "one core"),
        ("cpu_threads", gpu(), facts(device="cpu", roots=()), "no torch module"),
        ("tf32", gpu((7, 5)), facts(), "8.0"),
        ("bf16_autocast", gpu((7, 5)), facts(), "8.0"),
        ("bf16_autocast", gpu(), facts(autocasts_itself=True), "itself"),
        ("bf16_autocast", gpu(), facts(roots=()), "no torch module"),
        ("fp16_autocast", gpu(), facts(scales_itself=True), "itself"),
        ("fp16_autocast", gpu(), facts(optimizers=("LBFGS",)), "LBFGS"),
        ("channels_last", gpu(), facts(has_convolution=False), "no convolution"),
        ("cudnn_benchmark", gpu(), facts(varying_shapes=True), "shape"),
        ("sdpa_backend", gpu(), facts(has_attention=False), "attention"),
        ("fused_optimizer", gpu(), facts(optimizers=()), "no torch optimizer"),
        ("fused_optimizer", gpu(), facts(optimizers=("RMSprop",)), "RMSprop"),
        ("compile", gpu(), facts(compiles_itself=True), "itself"),
        ("compile", gpu((6, 1)), facts(), "7.0"),
        ("compile_cudagraphs", cpu(), facts(device="cpu"), "no GPU"),
        ("compile_max_autotune", cpu(), facts(device="cpu"), "no GPU"),
        ("compile_cudagraphs", gpu(), facts(varying_shapes=True), "fixed shapes"),
        ("allocator", cpu(), facts(device="cpu"), "no GPU"),
        ("batch_size", gpu(), facts(loaders=(loader(batch_size=None),)), "--arg batch-size="),
    ],
)
def test_unavailable_says_why(name, device, script, reason):
    assert reason in KNOBS[name].unavailable(device, script)


@pytest.mark.parametrize(
    ("device", "script", "tool"), [(cpu(), facts(device="cpu"), "C++"), (gpu(), facts(), "C")]
)
def test_compile_needs_a_compiler(device, script, tool, monkeypatch):
    monkeypatch.setattr(_compile.shutil, "which", lambda name: None)
    assert f"{tool} compiler" in KNOBS["compile"].unavailable(device, script)


@pytest.mark.parametrize(
    ("flags", "available"),
    [("fpu avx512f avx512_bf16", True), ("fpu amx_bf16", True), ("fpu avx2", False)],
)
def test_bfloat16_on_a_cpu_needs_its_instructions(flags, available, tmp_path, monkeypatch):
    info = tmp_path / "cpuinfo"
    info.write_text(f"processor : 0\nflags : {flags}\n")
    monkeypatch.setattr(bf16_autocast, "CPU_INFO", info)
    reason = KNOBS["bf16_autocast"].unavailable(cpu(), facts(device="cpu"))
    assert (reason is None) == available


def test_threads_of_a_cpu_need_no_module():
    """Layers may be called by another name than theirs, and functions without any."""
    knob, script = KNOBS["cpu_threads"], facts(device="cpu", roots=())
    assert knob.unavailable(cpu(), script) is None
    assert "no torch module" in knob.unavailable(cpu(), replace(script, optimizers=()))


def test_threads_leave_out_what_torch_takes_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(cpu_threads, "CPUS", tmp_path)
    for number in range(8):
        topology = tmp_path / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{number % 4},{number % 4 + 4}\n")
    script, knob = facts(device="cpu"), KNOBS["cpu_threads"]
    assert knob.choices(cpu(8), script) == [1, 2, 8]
    assert knob.choices(cpu(8), replace(script, cpu_threads=8)) == [1, 2, 4]
    assert knob.choices(cpu(8), replace(script, cpu_threads=1)) == [2, 4, 8]
    # A container's CPU limit: torch sees all cores of the machine.
    limited = replace(script, cpu_threads=64)
    assert knob.unavailable(cpu(1), limited) is None and knob.choices(cpu(1), limited) == [1]


@pytest.mark.parametrize(
    ("cores", "workers", "expected"),
    [(2, 1, 1), (2, 4, 1), (8, 2, 4), (8, 6, 1), (8, 0, None), (16, 8, 8)],
)
def test_threads_leave_the_workers_their_cores(cores, workers, expected, monkeypatch):
    monkeypatch.setattr(cpu_threads, "CPUS", Path("/nowhere"))
    knob, loaders = KNOBS["cpu_threads"], (LoaderFacts(32, workers, False, False, None),)
    run = measurement([20.0], facts=facts(device="cpu", loaders=loaders))
    assert knob.relieves(cpu(cores), run) == expected
    own = replace(run.facts, cpu_threads=1)
    assert knob.relieves(cpu(cores), replace(run, facts=own)) is None
    run = measurement([20.0], facts=facts(device="cuda", loaders=loaders))
    assert knob.relieves(cpu(cores), run) is None


def test_threads_where_the_cores_are_not_described(monkeypatch):
    monkeypatch.setattr(cpu_threads, "CPUS", Path("/nowhere"))
    assert KNOBS["cpu_threads"].choices(cpu(8), facts(device="cpu")) == [1, 4]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, "expandable_segments:True"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "a:1"}, "a:1,expandable_segments:True"),
        ({"PYTORCH_ALLOC_CONF": "b:2"}, "b:2,expandable_segments:True"),
    ],
)
def test_the_allocator_keeps_the_users_settings(own, expected, monkeypatch):
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    environment = KNOBS["allocator"].environment("expandable_segments")
    assert set(environment.values()) == {expected}
    assert set(environment) == {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}


def test_the_users_own_choice_of_allocator_stands(monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:False")
    assert "PYTORCH_ALLOC_CONF" in KNOBS["allocator"].unavailable(gpu(), facts())


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("LD_PRELOAD", "/usr/lib/libjemalloc.so.2", "LD_PRELOAD"),
        ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1", "already"),
        ("GLIBC_TUNABLES", "glibc.rtld.nns=3", None),
    ],
)
def test_the_users_own_choice_of_host_memory_stands(name, value, reason, monkeypatch):
    monkeypatch.setenv(name, value)
    said = KNOBS["host_memory"].unavailable(cpu(), facts(device="cpu"))
    assert said is None if reason is None else reason in said


def test_host_memory_needs_glibc(monkeypatch):
    def unknown(name):
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "confstr", unknown)
    assert "glibc" in KNOBS["host_memory"].unavailable(cpu(), facts(device="cpu"))


def test_host_memory_keeps_the_users_tunables(monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.rtld.nns=3")
    variables = KNOBS["host_memory"].environment("all")["GLIBC_TUNABLES"].split(":")
    assert variables[0] == "glibc.rtld.nns=3" and "glibc.malloc.mmap_max=0" in variables


FREEING = """
import ctypes, resource, sys
from gpuadvisor.tuners.knobs.host_memory import KNOB

class Target:
    effective = staticmethod(lambda: print("taken"))

if sys.argv[2:]:
    KNOB.apply(sys.argv[2], Target)
for times in (2, 6):  # the first ones are new to any heap
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        blocks = [ctypes.create_string_buffer(int(sys.argv[1])) for _ in range(4)]
        del blocks
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // times)
"""


def pages_asked_for(size, *value, **environment):
    command = [sys.executable, "-c", FREEING, str(size), *value]
    environment = {**os.environ, **environment}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert ("taken" in run.stdout) == bool(value)
    return int(run.stdout.split()[-1])


@pytest.mark.skipif(not host_memory.is_glibc(), reason="a setting of glibc")
@pytest.mark.parametrize(("value", "size"), [("32M", 1 << 20), ("all", 1 << 20), ("all", 40 << 20)])
def test_freed_host_memory_is_kept(value, size):
    """Four blocks together are more than glibc leaves at the end of its heap."""
    unchanged = pages_asked_for(size)
    assert unchanged > 3 * size / os.sysconf("SC_PAGESIZE")
    assert pages_asked_for(size, value) < 0.05 * unchanged
    assert pages_asked_for(size, **KNOBS["host_memory"].environment(value)) < 0.05 * unchanged


def test_a_larger_batch_changes_training_and_not_inference():
    knob = KNOBS["batch_size"]
    assert knob.progressive
    assert knob.level_for(facts(training=True)) is Level.AGGRESSIVE
    assert knob.level_for(facts(training=False)) is Level.BALANCED
    assert knob.effect_for(facts(training=True)) is Effect.TRAINING
    assert knob.effect_for(facts(training=False)) is Effect.NONE


def test_cuda_graphs_are_not_conservative():
    assert KNOBS["compile"].level is Level.CONSERVATIVE
    assert KNOBS["compile_cudagraphs"].level is Level.BALANCED


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("compile", "default", "model.compile()"),
        ("compile", "dynamic", "model.compile(dynamic=True)"),
        ("compile_cudagraphs", "cudagraphs", "model.compile(backend='cudagraphs')"),
        ("dataloader_workers", 8, "num_workers=8"),
        ("sdpa_backend", "cudnn", "[SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, "),
        ("fused_optimizer", "foreach", "foreach=True"),
    ],
)
def test_snippets(name, value, line):
    assert line in KNOBS[name].snippet(value)
