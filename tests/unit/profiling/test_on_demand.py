"""A process that can be profiled on demand, and what NVIDIA's tools call a kernel."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import gpuadvisor
from gpuadvisor import steps
from gpuadvisor.collectors import listeners
from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.nsight import quote
from gpuadvisor.rules.facts.kernel_families import bare_name

ANSWERED = """
import gpuadvisor, sys
from gpuadvisor.profiling import on_demand
on_demand.LEAVING_S = 0.1
gpuadvisor.profile_on_demand()
print(on_demand._listener._folder, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def answered():
    """A process that has answered a command, its folder, and how to let it end."""
    running = subprocess.Popen(
        [sys.executable, "-c", ANSWERED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    folder = Path(running.stdout.readline().strip())
    listeners.publish(
        folder / listeners.REQUEST, {"id": "1", "steps": 1, "stacks": 0, "seconds": 1}
    )
    running.send_signal(signal.SIGUSR2)
    while not (folder / listeners.ANSWER).exists():  # it has no torch
        time.sleep(0.01)
    yield folder, lambda: running.communicate("\n")
    running.kill()
    running.wait()


def test_a_process_that_was_profiled_leaves_nothing_when_it_ends(answered):
    folder, end = answered
    end()
    assert not folder.exists()
    assert str(folder) not in {each.folder for each in listeners.all_registered()}


def test_what_a_command_has_yet_to_read_stays_until_it_did(answered):
    folder, end = answered
    with listeners.alone(folder):
        end()
        listeners.all_registered()  # of another command
        assert (folder / listeners.ANSWER).exists()
    listeners.all_registered()
    assert not folder.exists()


def test_it_is_not_possible_in_another_thread():
    said = []

    def work():
        try:
            gpuadvisor.profile_on_demand()
        except UsageError as error:
            said.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert said == ["call gpuadvisor.profile_on_demand() in the main thread, as signals need"]


def test_a_signal_that_is_taken_is_left_alone():
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        with pytest.raises(UsageError, match="SIGUSR2 is taken by another handler"):
            gpuadvisor.profile_on_demand()
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_listening_costs_no_import_of_torch_or_numpy():
    text = (
        "import sys, gpuadvisor; gpuadvisor.profile_on_demand();"
        "print(sorted({'torch', 'numpy', 'rich', 'psutil', 'sqlalchemy'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_two_can_listen_to_the_steps():
    heard = []
    first, second = (lambda: heard.append(1)), (lambda: heard.append(2))
    steps.listen(first)
    steps.listen(second)
    gpuadvisor.step()
    steps.ignore(first)
    gpuadvisor.step()
    steps.ignore(second)
    gpuadvisor.step()
    assert heard == [1, 2, 2]


@pytest.mark.parametrize(
    ("kineto", "ncu"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
            "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>)",
            "vectorized_elementwise_kernel",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<int>(int)",
            "multi_tensor_apply_kernel",
        ),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n", "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n"),
        ("saxpy(int, float, float*)", "saxpy"),
        ("void saxpy(int)", "saxpy"),
        (
            "std::enable_if<!(bool)0, void>::type gemvx::kernel<int, (bool)(4 > 3)>(A<T>)",
            "kernel",
        ),
        ("void sum<(int)8, (n > 4)>(Span<Span<int>>) [with T=int]", "sum"),
    ],
)
def test_a_kernel_is_asked_for_by_its_bare_name(kineto, ncu):
    assert bare_name(kineto) == ncu


def test_the_line_in_which_a_tool_complains_is_quoted():
    said = "Generating report\nFATAL ERROR: no space left\nGoodbye\n"
    assert quote(said) == "FATAL ERROR: no space left"
    assert quote("one\ntwo\n\n") == "two"
    assert quote("") == ""
