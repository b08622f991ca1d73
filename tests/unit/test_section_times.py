"""How long the parts of a script take."""

import subprocess
import sys
import threading
import time

import pytest

import gpuadvisor
from gpuadvisor import profile_section, reset_sections, sections


@pytest.fixture(autouse=True)
def forgotten():
    reset_sections()
    yield
    reset_sections()


def test_a_block_is_timed():
    began = time.perf_counter()
    for _ in range(3):
        with profile_section("wait"):
            time.sleep(0.01)
    passed_ms = 1e3 * (time.perf_counter() - began)
    (wait,) = sections()
    assert (wait.name, wait.clock, wait.calls) == ("wait", "cpu", 3)
    assert 10 <= wait.min_ms <= wait.mean_ms <= wait.max_ms
    assert 30 <= wait.total_ms <= passed_ms
    assert "wait: " in str(wait)
    assert " of 3 calls (" in str(wait)
    with profile_section("once"):
        pass
    assert " of 1 call (" in str(sections()[1])


def test_a_function_is_timed_also_where_it_calls_itself():
    @profile_section("count")
    def count(down):
        return count(down - 1) if down else "done"

    assert count(4) == "done"
    assert sections()[0].calls == 5


def test_blocks_nest_and_the_inner_one_ends_first():
    with profile_section("outer"), profile_section("inner"):
        pass
    inner, outer = sections()
    assert (inner.name, outer.name) == ("inner", "outer")
    assert inner.total_ms <= outer.total_ms


def test_an_exception_passes_and_the_time_counts():
    with pytest.raises(KeyError), profile_section("failing"):
        raise KeyError
    assert sections()[0].calls == 1


def test_threads_do_not_lose_each_others_calls():
    def work():
        for _ in range(500):
            with profile_section("shared"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sections()[0].calls == 2000


def test_what_is_forgotten_is_gone():
    with profile_section("warm-up"):
        pass
    reset_sections()
    assert sections() == ()


def test_it_works_without_torch_and_without_nvtx():
    program = (
        "import sys\nsys.modules['torch'] = sys.modules['nvtx'] = None\nimport gpuadvisor\n"
        "with gpuadvisor.profile_section('plain'): pass\nprint(gpuadvisor.sections()[0].calls)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "1\n", run.stderr


def test_a_compiled_function_does_not_see_it():
    torch = pytest.importorskip("torch")

    @torch.compile(backend="eager", fullgraph=True)
    def double(x):
        with profile_section("inside"):
            return 2 * x

    with profile_section("around"):
        assert double(torch.ones(2)).tolist() == [2, 2]
    assert [section.name for section in sections()] == ["around"]


@pytest.mark.gpu
def test_on_a_gpu_it_times_the_gpu():
    torch = pytest.importorskip("torch")
    matrix = torch.randn(4096, 4096, device="cuda")

    def work():
        for _ in range(20):
            matrix @ matrix

    with gpuadvisor.profile_section("warm-up"):  # what is imported for the first is not timed
        work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    with gpuadvisor.profile_section("matmul"):
        work()
    launched_ms = 1e3 * (time.perf_counter() - began)
    torch.cuda.synchronize()
    passed_ms = 1e3 * (time.perf_counter() - began)
    matmul = next(section for section in sections() if section.name == "matmul")
    assert matmul.clock == "cuda"
    assert matmul.total_ms == pytest.approx(passed_ms, rel=0.1)
    assert launched_ms < passed_ms / 2  # the block did not wait for the GPU
