"""Suggested blocks: what they are, why, and what cannot be."""

import json
from itertools import product

import pytest

import gpuadvisor
from gpuadvisor.cli import main
from gpuadvisor.errors import AdvisorError, UsageError
from gpuadvisor.rules.facts.block_choice import Resources


@pytest.mark.parametrize(
    "shape, given, block",
    [
        (1_000_000_000, {}, (256, 1, 1)),
        ((4096, 4096), {}, (32, 8, 1)),
        ((4096, 4096), {"element_bytes": 8}, (16, 16, 1)),
        ((256, 256, 256), {}, (32, 4, 2)),
        # Rows of 8 elements that fill x follow one another in memory.
        ((1_000_000, 8), {}, (8, 32, 1)),
        # No row fills a block of 32 x 8: 16 high would leave half of the threads without one.
        ((5, 1_000_000), {}, (256, 1, 1)),
        ((1, 1, 7), {}, (8, 1, 1)),
    ],
)
def test_textbook_problems_get_textbook_blocks(shape, given, block):
    found = gpuadvisor.suggest_block({"registers_per_thread": 32}, shape, gpu="H100 SXM", **given)
    assert found.block == block


def counted(shape, block, size):
    """The share of the bytes moved that all warps ask for, and the lines of a warp at most; each
    warp's addresses one by one."""
    asked = moved = most = 0
    rows, row = (*shape, 1)[1], shape[0]
    wide, high = (*block, 1)[:2]
    for top, left in product(range(0, rows, high), range(0, row, wide)):
        for first in range(0, wide * high, 32):
            places = (divmod(each, wide) for each in range(first, min(first + 32, wide * high)))
            at = [
                ((top + y) * row + left + x) * size
                for y, x in places
                if top + y < rows and left + x < row
            ]
            bytes_ = {each + byte for each in at for byte in range(size)}
            asked += len(bytes_)
            moved += 32 * len({each // 32 for each in bytes_})
            most = max(most, len({each // 128 for each in bytes_}))
    return asked / moved, most


@pytest.mark.parametrize(
    "shape, size",
    [((3, 640), 4), ((5, 640), 8), ((1, 640), 4), ((1001, 40), 4), ((640, 40), 4), ((7,), 4)],
)
def test_what_a_warp_moves_is_what_its_addresses_say(shape, size):
    found = gpuadvisor.suggest_block(None, shape[::-1], gpu="A100", element_bytes=size)
    share, lines = counted(shape, found.block, size)
    assert found.coalesced == pytest.approx(share, abs=0.02)
    assert f"touches {lines} line" in " ".join(found.reasons)


def test_the_grid_covers_the_shape_in_cudas_order():
    found = gpuadvisor.suggest_block(None, (1080, 1920), gpu="9.0", sm_count=132)
    assert (found.block, found.grid) == ((32, 8, 1), (60, 135, 1))
    assert found.waves == pytest.approx(60 * 135 / (132 * found.occupancy.blocks))


def test_a_small_problem_is_spread_over_the_sms():
    found = gpuadvisor.suggest_block(None, 2000, gpu="H100 SXM")
    assert (found.block, found.grid) == ((32, 1, 1), (63, 1, 1))
    assert "63 blocks leave 69 of 132 SMs idle: the problem is small" in found.reasons


def test_what_is_not_known_of_the_gpu_is_said():
    found = gpuadvisor.suggest_block(None, 2000, gpu="9.0")
    assert found.waves is None
    unseen = "how blocks fall on the SMs was not looked at: "
    assert f"{unseen}how many there are is not known (--sms, or sm_count=, says it)" in (
        found.reasons
    )
    assert "its registers are not known" in found.reasons[0]
    several = gpuadvisor.suggest_block(None, 2000, gpu="h100")
    assert any(each.startswith(f"{unseen}products of this name have 114 or 132") for each in
               several.reasons)  # fmt: skip


@pytest.mark.parametrize("gpu, sms", [("h200", 132), ("H100 pcie", 114), ("V100", 80)])
def test_a_name_of_products_alike_tells_the_sms(gpu, sms):
    found = gpuadvisor.suggest_block(None, 7, gpu=gpu)
    assert (found.block, found.grid) == ((32, 1, 1), (1, 1, 1))
    assert f"1 block leaves {sms - 1} of {sms} SMs idle: the problem is small" in found.reasons
    assert found.reasons[0].startswith("32 threads are 1 warp, and")


def test_registers_and_shared_memory_make_blocks_smaller():
    heavy = {"registers_per_thread": 168, "shared_bytes_per_thread": 256}
    found = gpuadvisor.suggest_block(heavy, 10_000_000, gpu="H100 SXM")
    assert found.occupancy.launch.shared_bytes_per_block == 256 * found.threads
    assert found.threads < 256
    bounded = gpuadvisor.suggest_block({"most_threads": 64}, 10_000_000, gpu="H100 SXM")
    assert bounded.threads == 64


def test_reasons_are_sentences_with_figures():
    found = gpuadvisor.suggest_block({"registers_per_thread": 32}, (4096, 4096), gpu="H100 SXM")
    assert found.reasons == (
        "256 threads are 8 warps, and an SM holds 8 such blocks: 64 of 64 warps (half of them hide "
        "most latency), limited by warps and registers",
        "32 wide: a warp that reads elements of 4 bytes touches 1 line of 128 bytes, and uses "
        "100% of what is moved",
        "8 of such rows rather than wider ones: neighbours in a block share what they read, and "
        "wider rows move no less",
        "100.0% of the threads have an element",
        "65,536 blocks are 62.06 waves over 132 SMs, the last one 6% full; the SMs get 100% of an "
        "even share",
    )  # fmt: skip


class OfCupy:
    num_regs, shared_size_bytes, max_threads_per_block = 40, 1024, 512


class OfCudaCore:
    class attributes:  # noqa: N801 - as there
        @staticmethod
        def num_regs():
            return 40

        @staticmethod
        def shared_size_bytes():
            return 1024

        @staticmethod
        def max_threads_per_block():
            return 512


class OfNumba:
    def get_regs_per_thread(self):
        return {("float32",): 40, ("float64",): 38}

    def get_shared_mem_per_block(self):
        return {("float32",): 1024, ("float64",): 0}


@pytest.mark.parametrize("kernel, most", [(OfCupy(), 512), (OfCudaCore(), 512), (OfNumba(), 1024)])
def test_a_compiled_kernel_tells_what_it_takes(kernel, most):
    told = Resources(40, 1024, most_threads=most)
    assert gpuadvisor.suggest_block(kernel, 10**6, gpu="9.0") == gpuadvisor.suggest_block(
        told, 10**6, gpu="9.0"
    )


@pytest.mark.parametrize(
    "kernel, shape, gpu, said",
    [
        (None, (), "H100", "one to three sides"),
        (None, (4, 0), "H100", "one to three sides"),
        (None, "abc", "H100", "as 1000 or (1080, 1920), not 'abc'"),
        (None, (3, "x"), "H100", "a shape is one to three whole numbers"),
        (None, 100.5, "H100", "a shape is one to three whole numbers"),
        (None, 100, "Voodoo 2", "is not known by name"),
        (None, 100, "1.0", "is not known: give one of"),
        ({"regs": 3}, 100, "H100", "a kernel has no regs"),
        ({"registers_per_thread": -1}, 100, "H100", "from 0 on"),
        (lambda: None, 100, "H100", "a function does not tell what it takes of an SM"),
        ({"registers_per_thread": 300}, 100, "H100", "at most 255 registers, not 300"),
        ({"most_threads": 16}, 100, "H100", "at most 16 threads are less than a warp"),
    ],
)
def test_what_cannot_be_is_said(kernel, shape, gpu, said):
    with pytest.raises(UsageError) as refused:
        gpuadvisor.suggest_block(kernel, shape, gpu=gpu)
    assert said in str(refused.value)


def test_a_kernel_of_which_no_block_can_be_launched():
    with pytest.raises(
        AdvisorError, match="no block of this kernel can be launched on Hopper for 1"
    ):
        gpuadvisor.suggest_block({"shared_bytes_per_block": 1 << 20}, 100, gpu="H100")


def test_the_command_says_the_same(capsys):
    assert main(["suggest-block", "1080x1920", "--gpu", "H100", "--regs", "40", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema_version"], found["block"], found["grid"]) == (1, [32, 8, 1], [60, 135, 1])
    assert main(["suggest-block", "1080x1920", "--gpu", "H100", "--regs", "40"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("block 32 x 8, grid 60 x 135 on Hopper\n")
    assert all(reason in page for reason in found["reasons"])
    kernel = {"registers_per_thread": 40}
    in_python = gpuadvisor.suggest_block(kernel, (1080, 1920), gpu="H100")
    assert page == f"{in_python}\n" == f"{in_python!r}\n"


def test_a_compute_capability_is_either_option(capsys):
    pages = []
    for option in ("--gpu", "--cc"):
        assert main(["suggest-block", "1080x1920", option, "9.0"]) == 0
        pages.append(capsys.readouterr().out)
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    "words",
    [
        ["1x2x3x4"],
        ["many"],
        ["100", "--smem", "lots"],
        ["0"],
        ["100", "--sms", "0"],
        ["100", "--regs", "-1"],
    ],
)
def test_a_command_line_that_makes_no_sense(words, capsys):
    assert main(["suggest-block", "--gpu", "H100", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
