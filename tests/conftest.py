"""A driver's library without a driver, for all tests: the real nvidia-ml-py on top of `fake_nvml`.

Tests marked `gpu` run where there is a GPU; elsewhere they are skipped, and say so.
"""

import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from gpuadvisor.collectors.devices import inventory

# Other threads of OpenBLAS spin where they wait, two thirds of the CPU time of searches by a model.
# numpy reads this when it is imported, as by none of the imports above.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ.pop("OMP_NUM_THREADS", None)  # `cpu_threads` does not try what it says
# Programs that tests start look for garbage seldom, unless a test has other folders for them there;
# they are of the checkout that PYTHONPATH names, if it names one.
_QUICK = str(Path(__file__).parent / "quick_python")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_QUICK, os.environ.get("PYTHONPATH")]))

# How long a machine takes for an example says nothing of what is tested, and whether a commit
# passes is no matter of luck: each run draws the same. --hypothesis-profile=search draws others.
settings.register_profile(
    "any machine",
    deadline=None,
    derandomize=True,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "search", settings.get_profile("any machine"), derandomize=False, max_examples=2000
)
settings.load_profile("any machine")

SOURCE = Path(__file__).parent / "fake_nvml" / "fake_nvml.c"
LIBRARY = "libnvidia-ml.so.1"  # what nvidia-ml-py gives to dlopen(3)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_reaches_programs():
    """Programs that tests start can be interrupted, wherever pytest runs.

    A shell without job control lets its background jobs ignore SIGINT, and what is ignored stays
    so in the programs that they start; what has a handler is at its default there (execve(2)).
    """
    inherited = signal.getsignal(signal.SIGINT)
    if inherited is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


@pytest.fixture(scope="session", autouse=True)
def home_of_its_own(tmp_path_factory):
    """Nothing that a test keeps is the user's, and nothing that the user keeps is a test's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUADVISOR_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def statements_are_compiled_once():
    """Stores share what SQLAlchemy compiles for each: a fifth of the time of simulated studies."""
    stores = sys.modules.get("gpuadvisor.storage.open_database")
    if stores is None:  # nothing that was collected has a store
        yield
        return
    create, first = stores.create_engine, []

    def alike(*args, **options):
        engine = create(*args, **options)
        first[:] = first or [engine]
        engine.dialect, engine._compiled_cache = first[0].dialect, first[0]._compiled_cache
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "create_engine", alike)
        yield


@pytest.fixture(autouse=True)
def each_test_draws_the_same_numbers():
    """Whether a commit passes is no matter of luck: torch, numpy and Python begin anew."""
    random.seed(0)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(0)
    if torch := sys.modules.get("torch"):  # what a test imports itself has a seed of its own
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory):
    """The folder with the fake library, for LD_LIBRARY_PATH."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("the fake NVML needs a C compiler and Linux")
    folder = tmp_path_factory.mktemp("fake_nvml")
    flags = [
        "-std=c11",
        "-D_DEFAULT_SOURCE",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "-pthread",
    ]
    subprocess.run([compiler, *flags, "-o", folder / LIBRARY, SOURCE], check=True)
    return folder


@pytest.fixture
def nvml_environ(fake_nvml):
    """The environment of a process in which NVML is the fake, and nothing of the host's shows."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "FAKE_NVML_"))}
    return {**inherited, "LD_LIBRARY_PATH": str(fake_nvml)}


@pytest.fixture
def ask(nvml_environ):
    """A function that returns what an expression is worth in such a process, as JSON has it."""

    def evaluate(imports, expression, **environ):
        program = (
            "import dataclasses, json\n"
            f"{imports}\n"
            f"print(json.dumps({expression}, default=dataclasses.asdict))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**nvml_environ, **environ},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return evaluate


SCENES = """
import os, time
from pathlib import Path
from gpuadvisor.collectors.nvml import gpm, pcie_throughput, xid
from gpuadvisor.collectors.nvml.sampler import Sampler
gpm.MIN_GAP_S = 0  # the scenes change faster than a second
xid.WAIT_MS = 10
clock = [1e9]
control = Path(os.environ["FAKE_NVML_CONTROL"])

def scene(**settings):
    control.write_text("".join(f"{name}={value}\\n" for name, value in settings.items()))
    time.sleep(0.03)  # the fake looks every 20 ms

def start():
    return Sampler(clock=lambda: clock[0])

def poll(sampler, after_s=1.0, full=True):
    clock[0] += after_s
    time.sleep(0.001)  # GPM compares two instants
    return sampler.poll(full=full)
"""


@pytest.fixture
def play(ask, tmp_path):
    """A function that plays a program with scenes; `result` is what the program must set."""

    def played(program, **environ):
        return ask(SCENES + program, "result", FAKE_NVML_CONTROL=str(tmp_path / "scene"), **environ)

    return played


# A collection of garbage walks through thousands of tests and all that they have imported, half a
# second each time: an eighth of the time of simulated studies at Python's own thresholds (700, 10
# and 10).
gc.set_threshold(20_000, 10, 20)
gc.disable()


def pytest_collection_finish():
    """What is there then stays, and is looked at no more, nor while it is made."""
    gc.freeze()
    gc.enable()


def spread(items):
    """Return the tests with files that start programs between those that only compute.

    The former wait for most of their time, and workers that all wait leave cores idle. They come in
    the first two thirds, those with the longest studies early, so that none is left at the end; of
    the latter, whole simulated studies and pages come first, and what takes a moment last.
    """
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [path for path in files if {"integration", "stress"} & set(path.parts)]
    computing = iter([path for path in reversed(files) if path not in set(waiting)])
    between = (len(files) - len(waiting)) * 2 // (3 * len(waiting)) if waiting else 0
    order = [each for path in reversed(waiting) for each in (path, *islice(computing, between))]
    return [item for path in (*order, *computing) for item in files[path]]


def pytest_collection_modifyitems(items):
    items[:] = spread(items)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not inventory().gpus:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))
