"""What another block makes of sums in 16 bits: other rounding, or another function."""

import linecache
import random

import pytest

torch = pytest.importorskip("torch")

from gpuadvisor.collectors.kernels.child.timing import HostClock  # noqa: E402 - no torch
from gpuadvisor.collectors.script.child.inquiry import OrderedInquiry  # noqa: E402 - the same
from gpuadvisor.tuners.knobs._triton import copies as repeated  # noqa: E402 - the same
from gpuadvisor.tuners.knobs._triton.constants import Constants  # noqa: E402 - the same
from gpuadvisor.tuners.knobs._triton.precise import ROUNDED  # noqa: E402 - the same
from tests.triton_launches import copies  # noqa: E402 - the same

ROWS, COLUMNS = 64, 16
"""Rows are added to one of bfloat16, by a program each. With eight a program, results are other
ones by several per cent, and nearer to the sum."""
EIGHT = {"ROWS": 8}


class Programs(HostClock):
    """Programs are the time: it is the same on each machine."""

    def __init__(self, kernels):
        self._ran = kernels.tl.PROGRAMS

    def mark(self):
        return self._ran[0]

    def between_ms(self, begin, end):
        return float(end - begin)


def launch(kernels, kernel, *more, dtype=torch.bfloat16, start=16.0, between=(0.07, 0.08), **given):
    """Copies of a launch, in which every row moves a sum of bfloat16 by 1/8 if nothing is given."""
    torch.manual_seed(3)
    random.seed(3)
    x = (between[0] + (between[1] - between[0]) * torch.rand(ROWS, COLUMNS)).to(dtype)
    x[:, 0] = given.pop("first", x[:, 0])
    place = given.pop("place", 0)
    out = torch.full((place + COLUMNS,), start, dtype=dtype)[place:]
    seen = [torch.zeros(COLUMNS, dtype=torch.int32)] if kernel is kernels.added else []
    blocks = {"ROWS": 1, "BLOCK": COLUMNS, **given}
    return copies(
        kernels, kernel, x, out, *seen, ROWS, COLUMNS, *more, **blocks,
        grid=lambda meta: (-(-ROWS // meta["ROWS"]),), clock=Programs(kernels),
    )  # fmt: skip


def added(kernels, factor=1.0, **given):
    return launch(kernels, kernels.added, factor, **given)


def test_other_rounding_that_is_no_larger_is_none_to_refuse(kernels):
    tried = added(kernels)
    assert tried.measure(EIGHT, None) == {
        "state": "complete", "reason": ROUNDED, "times_ms": [8.0], "default_ms": [64.0]
    }  # fmt: skip
    told = tried.measure({"ROWS": 8, "PARTS": 64}, None)
    assert told["state"] == "wrong"
    less = "it computes the same less precisely: root mean square of its errors 4.8, at most 3.2"
    assert told["reason"].startswith(less)


def test_rounding_can_be_judged_by_a_later_measurement(kernels):
    tried, less_precise = added(kernels), {"ROWS": 8, "PARTS": 64}
    assert tried.measure(less_precise, None, judge=False)["state"] == "complete"
    assert tried.measure(less_precise, None)["state"] == "wrong"
    of_blocks = added(kernels, HOW="of blocks").measure({"ROWS": 1, "BLOCK": 4}, None, judge=False)
    assert of_blocks["state"] == "wrong", "not by what rounding can do"


def test_results_may_lie_at_odd_places(kernels):
    tried = added(kernels, place=3)
    assert tried.measure(EIGHT, None)["reason"] == ROUNDED
    assert tried.measure({"ROWS": 8, "HOW": "of blocks"}, None)["state"] == "wrong"


def test_sums_that_the_scripts_own_rounds_to_nothing(kernels):
    tried = added(kernels, 1e-7, dtype=torch.float16, start=0.0)
    assert tried.measure(EIGHT, None)["state"] == "complete"


def test_what_is_no_faster_is_not_judged(kernels):
    told = added(kernels, ROWS=8).measure({"ROWS": 1}, None)
    assert (told["state"], told["reason"]) == ("pruned", "no faster, and so not judged")


TRAPS = {
    "its block is its arithmetic": ({"HOW": "of blocks"}, "in float32, too: 16 of 16"),
    "it draws numbers": ({"HOW": "by chance"}, "other results from launch to launch"),
    "another type is another function": ({"HOW": "by size"}, "it computes something else"),
    "it does not run in float32": ({"HOW": "in few bytes"}, "out of resource: shared memory"),
    "its type is given by the launch": ({"KIND": torch.bfloat16}, "in float32, too: 16 of 16"),
    "the script's own overflows": (
        {"factor": 600.0, "dtype": torch.float16, "start": 32768.0, "first": 1.0},
        "it computes something else",
    ),
    "noise hides its arithmetic": (
        {"HOW": "in any order, of blocks", "start": 15.0, "between": (0.0, 0.1)},
        "in float32, too: 16 of 16",
    ),
}


@pytest.mark.parametrize(("given", "reason"), TRAPS.values(), ids=TRAPS)
def test_what_only_looks_like_rounding_is_refused(kernels, given, reason):
    told = added(kernels, **given).measure(EIGHT, None)
    assert told["state"] == "wrong"
    assert reason in told["reason"]


def test_the_order_of_sums_may_be_any(kernels):
    tried = added(kernels, HOW="in any order", start=15.0, between=(0.0, 0.1))
    assert tried.is_inexact
    same = {"num_warps": 4, "num_stages": 3}
    own = [tried.measure(same, None)["state"] for _ in range(6)]
    assert own == ["complete"] * 6, "the script's own is not judged"
    assert tried.measure(EIGHT, None)["state"] == "complete"


@pytest.mark.parametrize("name", ["added_by_type", "added_by_rule"])
def test_a_function_of_the_type_is_refused(kernels, name):
    told = launch(kernels, getattr(kernels, name)).measure(EIGHT, None)
    assert told["state"] == "wrong"


def test_without_room_for_float32_it_is_refused_as_before(kernels, monkeypatch):
    cuda = torch.cuda
    monkeypatch.setattr(cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(cuda, "mem_get_info", lambda: (4 << 30, 80 << 30))
    monkeypatch.setattr(cuda, "memory_reserved", lambda: 0)
    monkeypatch.setattr(cuda, "memory_allocated", lambda: 0)
    tried = added(kernels)
    monkeypatch.setattr(repeated, "WIDE_COPIES", 1 << 20)
    told = tried.measure(EIGHT, None)
    assert told["state"] == "wrong"
    # float32 for 64 by 16 and for 16 elements of bfloat16, beside 16 whole numbers
    assert "copies of its arguments take 4.1 GiB, and there is room for 3.2 GiB" in told["reason"]


def function(body):
    """A kernel's function of these lines, whose text can be read."""
    text = "def kernel(x, out, ACTIVE, BLOCK):\n" + "".join(f"    {line}\n" for line in body)
    name = f"<kernel {abs(hash(text))}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names = {}
    exec(compile(text, name, "exec"), names)
    return names["kernel"]


@pytest.mark.parametrize(
    ("line", "tells"),
    [
        ("tl.store(out, tl.load(x).to(out.dtype.element_ty))", False),
        ("total = tl.zeros((BLOCK,), dtype=x.dtype.element_ty)", False),
        ("if x.dtype.element_ty == tl.float16: out += 1", True),
        ("kind = x.dtype", True),
        ("value = tl.load(x).to(tl.float32 if x.dtype == tl.float16 else tl.float64)", True),
        ("value = tl.load(x).to(tl.int16, bitcast=True)", True),
        ("value = tl.load(x).to(tl.int16, None, True)", True),
        ("x = x.to(tl.pointer_type(tl.int32))", True),
        ("value = ACTIVE(tl.load(x))", True),
        ("value = tl.inline_asm_elementwise('', '', [x], x, True, 1)", True),
    ],
)
def test_what_a_type_decides_is_seen_in_the_text(line, tells):
    assert Constants(function([line])).tells_types is tells


@pytest.mark.parametrize(
    ("more", "rounded"),
    [("", True), (", input_precision='ieee'", False), (", allow_tf32=False", False)],
)
def test_products_of_float32_are_rounded_where_the_text_does_not_forbid_it(more, rounded):
    found = Constants(function([f"y = tl.dot(x, x, max_num_imprecise_acc=0{more})"]))
    assert found.multiplies is rounded
    limit = OrderedInquiry.rounding(torch.float32, 512, found.multiplies)
    assert (limit > 2**-10) is rounded
