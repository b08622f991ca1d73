"""Launches of Triton kernels: described, and given other values."""

import sys

import pytest

torch = pytest.importorskip("torch")

from gpuadvisor.collectors.script.child import script_facts  # noqa: E402 - no torch
from gpuadvisor.tuners.knobs import load_knobs  # noqa: E402 - the same
from gpuadvisor.tuners.knobs._triton import launches as launching  # noqa: E402 - the same
from gpuadvisor.tuners.knobs._triton import search as searching  # noqa: E402 - the same
from gpuadvisor.tuners.knobs._triton.launched import fixed, held, tunable  # noqa: E402 - same
from gpuadvisor.tuners.knobs._triton.launches import (  # noqa: E402 - the same
    Change,
    Kernel,
    Line,
    NotTunable,
    Table,
    parse_lines,
    texts_of,
)
from tests.triton_launches import N, copies, seen  # noqa: E402 - the same

KNOB = load_knobs()["triton_kernels"]


def line_for(launched, args=(), kwargs=None, grid=len, **values):
    """The line of launches with these arguments, and a function as the grid if not said."""
    kernel = Kernel.of(launched)
    return Line(kernel.name, kernel.texts(grid, args, kwargs or {}), values)


class Blocks:
    """A grid that notes which blocks it was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, meta):
        self.asked.append(meta["BLOCK"])
        return (-(-N // meta["BLOCK"]),)


# -- text ------------------------------------------------------------------------------------------


def test_a_line_is_read_as_it_was_written(kernels):
    x = torch.ones(4, N, dtype=torch.bfloat16)
    line = line_for(kernels.scale, (x, x, N), {"BLOCK": 32}, BLOCK=64, num_warps=2)
    text = str(line)
    assert text.startswith("odd_kernels.scale@")
    assert "(x: bfloat16[4, 256], out: bfloat16[4, 256], n: 256, BLOCK: 32)" in text
    assert text.endswith(" -> BLOCK: 64, num_warps: 2")
    assert Line.parse(text) == line
    assert parse_lines(f"{text}\n\n{text}\n") == [line, line]


@pytest.mark.parametrize(
    "value",
    ["", "  \n", True, 3, "scale", "scale(x: 1) ->", "scale(x: 1) -> BLOCK", "scale -> BLOCK: 2"],
)
def test_what_is_no_line_is_refused_in_words(value):
    assert KNOB.problem(value)


def test_the_lines_that_make_it_permanent():
    line = "train.scale@5083cf39(x: float32[8], BLOCK: 32) -> BLOCK: 128, num_warps: 8"
    assert KNOB.problem(line) is None
    assert KNOB.snippet(line) == (
        "scale[grid](..., BLOCK=128, num_warps=8)  # where x: float32[8], BLOCK: 32; "
        "of `triton.autotune`: its only Config"
    )


def test_of_tensors_that_are_alike_a_line_names_the_shape_of_the_first(kernels):
    x, other, launch = torch.ones(N), torch.ones(N // 2), Kernel.of(kernels.offset)
    whole = line_for(kernels.offset, (x, x, x, N), {"BLOCK": 32}, BLOCK=64)
    short = whole.shortened()
    assert "(x: float32[256], shift: tensor, out: tensor, n: 256, BLOCK: 32)" in str(short)
    assert Line.parse(str(short)) == short

    def texts(*args):
        return launch.texts(len, args, {"BLOCK": 32})

    assert short.matches(texts(x, x, x, N))
    assert short.matches(texts(x, other, x.double(), N)), "whatever their shape and type"
    assert not short.matches(texts(x, None, x, N)), "without a shift it is another launch"
    assert not short.matches(texts(x, 3, x, N))
    assert not short.matches(texts(other, other, other, N))
    seen_too = whole.shortened([texts(x, other, x, N)])
    assert "shift: float32[256], out: tensor" in str(seen_too), "what was seen is told apart"


def test_numbers_with_a_point_are_no_part_of_what_a_launch_is(kernels):
    named = Kernel.of(kernels.scale).named((torch.ones(2), 0.5), {"BLOCK": 32, "num_warps": 8})
    assert texts_of(named) == {"x": "float32[2]", "BLOCK": "32", "num_warps": "8"}


# -- launches with other values --------------------------------------------------------------------


@pytest.fixture
def changing(kernels):
    """Put a table around launches, until the fake Triton goes."""

    def put(*lines, **options):
        told = {"changed": 0, "stale": []}

        def changed():
            told["changed"] += 1

        table = Table(list(lines), changed, told["stale"].append, **options)
        launching.stand_around(table.getitem)
        return told, table

    return put


def test_the_launch_of_a_line_gets_its_values_and_others_do_not(kernels, changing):
    x, other = torch.rand(N), torch.rand(N // 2)
    out = torch.empty(N)
    told, _ = changing(line_for(kernels.scale, (x, out, N), {"BLOCK": 32}, BLOCK=128))
    blocks = Blocks()
    for _ in range(3):
        kernels.scale[blocks](x, out, N, BLOCK=32)
    assert blocks.asked == [128, 128, 128]
    assert torch.equal(out, 2 * x)
    assert told["changed"] == 1, "it is looked up once"
    kernels.scale[blocks](other, out, N // 2, BLOCK=32)
    kernels.scale[blocks](x, out, N, BLOCK=16)
    kernels.scale[blocks](x.double(), out.double(), N, BLOCK=32)
    assert blocks.asked[3:] == [32, 16, 32], "another shape, block or dtype is another launch"
    assert told["stale"] == []


def test_a_block_that_is_given_by_place_or_not_at_all(kernels, changing):
    x, out, blocks = torch.rand(N), torch.empty(N), Blocks()
    by_place = line_for(kernels.scale, (x, out, N, 32), BLOCK=64)
    left_out = line_for(kernels.offset, (x, None, out, N), BLOCK=128)
    given = line_for(kernels.offset, (x, x, out, N), BLOCK=16)
    changing(by_place, left_out, given)
    kernels.scale[blocks](x, out, N, 32)
    assert torch.equal(out, 2 * x)
    kernels.offset[blocks](x, None, out, N)
    assert torch.equal(out, x)
    kernels.offset[blocks](x, x, out, N)  # a tensor where the first launch had none
    assert torch.equal(out, 2 * x)
    assert blocks.asked == [64, 128, 16]


def test_a_tensor_of_any_shape_is_looked_up_once(kernels, changing):
    x, out, blocks = torch.rand(N), torch.empty(N), Blocks()
    line = line_for(kernels.offset, (x, x, out, N), {"BLOCK": 32}, BLOCK=64).shortened()
    told, _ = changing(line)
    kernels.offset[blocks](x, x, out, N, BLOCK=32)
    kernels.offset[blocks](x, torch.ones(N, 2)[:, 0].contiguous(), out, N, BLOCK=32)
    assert torch.equal(out, x + 1)
    assert told["changed"] == 1, "what it is does not matter, only that it is one"
    kernels.offset[blocks](x, None, out, N, BLOCK=32)
    kernels.offset[blocks](x[:8], x, out, N, BLOCK=32)
    assert blocks.asked == [64, 64, 32, 32]


def test_tensors_are_not_kept_alive_by_what_is_remembered(kernels, changing):
    x, out, blocks = torch.rand(N), torch.empty(N), Blocks()
    _, table = changing(line_for(kernels.unread, (x, 3, out, N), BLOCK=128))
    kernels.unread[blocks](x, 3, out, N)
    kernels.unread[blocks](x, torch.rand(N), out, N)  # a number before
    (known,) = filter(None, table._known)
    keys = [part for _, changes in known.values() for key in changes for part in key]
    assert not any(isinstance(part, torch.Tensor) for part in keys)
    assert blocks.asked == [128, 32]


def test_an_autotuned_kernel_is_launched_past_its_autotuner(kernels, changing):
    x, out, blocks = torch.rand(N), torch.empty(N), Blocks()
    changing(line_for(kernels.tuned, (x, out, N), BLOCK=256, num_warps=8))
    kernels.tuned[blocks](x, out, N)
    assert torch.equal(out, 3 * x)
    assert blocks.asked == [256], "nothing was benchmarked"
    assert kernels.tuned.best_config is None


def test_heuristics_see_the_new_block(kernels, changing):
    x, out, blocks = torch.rand(N + 32), torch.zeros(N + 32), Blocks()
    changing(line_for(kernels.evenly, (x, out, N - 32), {"BLOCK": 32}, BLOCK=128))
    kernels.evenly[blocks](x, out, N - 32, BLOCK=32)
    assert blocks.asked == [128]
    assert out[N - 32 :].eq(0).all(), "it is not even any more"


def test_rules_around_an_autotuner_are_followed_past_it(kernels, changing):
    x, shift, out, blocks = torch.rand(N), torch.rand(N), torch.empty(N), Blocks()
    changing(
        line_for(kernels.ruled_around, (x, shift, out, N), BLOCK=128, num_warps=8),
        line_for(kernels.ruled_around, (x, None, out, N), BLOCK=256),
    )
    kernels.ruled_around[blocks](x, shift, out, N)
    assert torch.equal(out, x + shift)
    kernels.ruled_around[blocks](x, None, out, N)
    assert torch.equal(out, x)
    assert blocks.asked == [128, 256], "nothing was benchmarked"


def test_a_rule_for_a_block_is_passed_by_where_the_block_is_ours(kernels, changing):
    x, out, blocks = torch.rand(N), torch.empty(N), Blocks()
    changing(line_for(kernels.ruled_within, (x, out, N), BLOCK=128, num_warps=4))
    kernels.ruled_within[blocks](x, out, N)
    assert torch.equal(out, x)
    assert blocks.asked == [128]
    kernels.ruled_within[blocks](x, out, N - 1)
    assert set(blocks.asked[1:]) == {32}, "another launch has what the rule says"


def test_a_grid_of_numbers_gets_other_warps_and_no_other_block(kernels, changing):
    x, out, numbers = torch.rand(N), torch.empty(N), (N // 32,)
    of_function = line_for(kernels.scale, (x, out, N), {"BLOCK": 32}, BLOCK=128)
    of_numbers = line_for(kernels.scale, (x, out, N), {"BLOCK": 32}, numbers, num_warps=2)
    assert "grid: numbers" in str(of_numbers)
    changing(of_function, of_numbers)
    blocks = Blocks()
    for _ in range(2):
        kernels.scale[numbers](x, out, N, BLOCK=32)
        assert torch.equal(out, 2 * x)
        assert kernels.scale.options == {"num_warps": 2}
        kernels.scale[blocks](x, out, N, BLOCK=32)
        assert kernels.scale.options == {}
    assert blocks.asked == [128, 128]


def test_a_line_of_a_function_is_not_for_a_grid_of_numbers(kernels, changing):
    x, out = torch.rand(N), torch.empty(N)
    told, _ = changing(line_for(kernels.scale, (x, out, N), {"BLOCK": 32}, BLOCK=128))
    kernels.scale[(N // 32,)](x, out, N, BLOCK=32)
    assert torch.equal(out, 2 * x)
    assert told["changed"] == 0


def test_a_kernel_that_was_edited_is_launched_as_it_is_and_that_is_said(kernels, changing):
    x, out, blocks = torch.rand(N), torch.empty(N), Blocks()
    line = line_for(kernels.scale, (x, out, N), {"BLOCK": 32}, BLOCK=128)
    old = Line("odd_kernels.scale@00000000", line.arguments, line.values)
    told, _ = changing(old)
    kernels.scale[blocks](x, out, N, BLOCK=32)
    assert blocks.asked == [32]
    assert told["stale"] == [
        "scale is launched as it is: its text is not that for which values were found"
    ]


def test_sizes_that_never_come_again_are_not_remembered_for_ever(kernels, changing, monkeypatch):
    monkeypatch.setattr(launching, "MOST_FORMS", 3)
    out, blocks = torch.empty(N), Blocks()
    x = torch.rand(9)
    _, table = changing(line_for(kernels.scale, (x, out, 9), {"BLOCK": 32}, BLOCK=16))
    for size in range(1, 9):
        kernels.scale[blocks](torch.rand(size), out, size, BLOCK=32)
    (known,) = filter(None, table._known)
    assert [len(changes) for _, changes in known.values()] == [3]
    kernels.scale[blocks](x, out, 9, BLOCK=32)
    assert set(blocks.asked) == {32}


def test_it_is_turned_on_and_off_in_a_running_script(kernels, script):
    x, out, blocks = torch.rand(N), torch.empty(N), Blocks()
    target = script()
    turn = KNOB.live(target.seen_by("triton_kernels"))
    line = line_for(kernels.scale, (x, out, N), {"BLOCK": 32}, BLOCK=128)
    for value in (None, str(line), None, str(line).replace("128", "64"), None):
        turn(value)
        kernels.scale[blocks](x, out, N, BLOCK=32)
    assert blocks.asked == [32, 128, 32, 64, 32]
    assert "triton_kernels" in target.details


def test_it_is_applied_as_a_plan_says(kernels, script):
    x, out, blocks = torch.rand(N), torch.empty(N), Blocks()
    line = line_for(kernels.scale, (x, out, N), {"BLOCK": 32}, BLOCK=128)
    target = script(triton_kernels=str(line))
    assert target.details == {}
    kernels.scale[blocks](x, out, N, BLOCK=32)
    assert blocks.asked == [128]
    assert "triton_kernels" in target.details


def test_a_triton_that_launches_otherwise_is_refused_in_words(kernels, script, monkeypatch):
    interface = sys.modules["triton.runtime.jit"].KernelInterface
    monkeypatch.delattr(interface, "__getitem__")
    target = script(triton_kernels="a.b@0(x: 1) -> BLOCK: 2")
    assert "3.6.0+fake launches its kernels" in target.refusals["triton_kernels"]
    turn = KNOB.live(script().seen_by("triton_kernels"))
    with pytest.raises(RuntimeError, match=r"3\.6\.0\+fake launches its kernels"):
        turn("a.b@0(x: 1) -> BLOCK: 2")


# -- what may be set -------------------------------------------------------------------------------


def test_what_may_be_set_are_powers_of_two_that_are_compiled_in_and_warps(kernels):
    x = torch.rand(N)
    launch = seen(kernels, kernels.scale, x, x, N, BLOCK=32, num_warps=2)
    assert tunable(Kernel.of(kernels.scale), launch) == {"BLOCK": 32, "num_warps": 2}
    launch = seen(kernels, kernels.scale, x, x, N, BLOCK=48)
    assert tunable(Kernel.of(kernels.scale), launch) == {"num_warps": 4}
    launch = seen(kernels, kernels.offset, x, None, x, N)
    assert tunable(Kernel.of(kernels.offset), launch) == {"BLOCK": 32, "num_warps": 4}


def test_of_an_autotuned_kernel_what_it_has_chosen(kernels):
    x, out = torch.rand(N), torch.empty(N)
    kernels.tuned[kernels.blocks_of(N)](x, out, N)
    kernel = Kernel.of(kernels.tuned)
    found = tunable(kernel, seen(kernels, kernels.tuned, x, out, N))
    assert found == {"BLOCK": kernels.tuned.best_config.kwargs["BLOCK"], "num_warps": 4}
    assert fixed(kernel, seen(kernels, kernels.tuned, x, out, N)) == {"num_stages": 3}


def test_of_an_autotuned_kernel_with_a_grid_of_numbers_the_warps(kernels):
    x, out, grid = torch.rand(N), torch.empty(N), (N // 32,)
    kernels.tuned[grid](x, out, N)
    kernel, launch = Kernel.of(kernels.tuned), seen(kernels, kernels.tuned, x, out, N, grid=grid)
    assert tunable(kernel, launch) == {"num_warps": 4}
    chosen = kernels.tuned.best_config.kwargs["BLOCK"]
    assert fixed(kernel, launch) == {"BLOCK": chosen, "num_stages": 3}


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("ruled_within", (), {"BLOCK": 32, "num_warps": 2}),
        ("ruled_around", (None,), {"BLOCK": 32, "num_warps": 4}),
        ("evenly", (), {"num_warps": 4}),  # of its two, none was given a block
    ],
)
def test_what_rules_make_may_be_set_too(kernels, name, args, expected, monkeypatch):
    x, out, launched = torch.rand(N), torch.empty(N), getattr(kernels, name)
    kernel = Kernel.of(launched)
    if kernel.tuner:
        kernel.tuner.best_config = kernel.tuner.configs[0]
    if name == "evenly":
        monkeypatch.setitem(launched.values, "EVEN", lambda given: True)
    assert tunable(kernel, seen(kernels, launched, x, *args, out, N)) == expected


def test_one_row_a_program_is_a_block_where_a_rule_says_so(kernels):
    x, out = torch.rand(8, 32), torch.empty(8, 32)
    grid = lambda meta: (-(-8 // meta["ROWS"]),)  # noqa: E731 - as scripts do
    launch = seen(kernels, kernels.some_rows, x, out, 8, 32, BLOCK=32, grid=grid)
    own = {"BLOCK": 32, "ROWS": 1, "num_warps": 4, "num_stages": 3}
    assert tunable(Kernel.of(kernels.some_rows), launch) == own
    tried = copies(kernels, kernels.some_rows, x, out, 8, 32, BLOCK=32, grid=grid)
    assert tried.measure({"BLOCK": 32, "ROWS": 4}, None)["state"] == "complete"
    assert tried.measure({"BLOCK": 16, "ROWS": 4}, None)["state"] == "wrong"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("counted", "more stands around it than one autotuner and heuristics"),
        ("twice_tuned", "more stands around it than one autotuner and heuristics"),
        ("prepared", "its autotuner's configurations have hooks that prepare arguments"),
    ],
)
def test_autotuners_that_cannot_be_passed_by(kernels, name, reason):
    with pytest.raises(NotTunable, match=reason):
        Kernel.of(getattr(kernels, name)).check()


def test_a_grid_of_numbers_leaves_the_steps_of_a_loop_free(kernels):
    x, out = torch.rand(64, 32), torch.empty(32)
    kernel, blocks = Kernel.of(kernels.column_totals), {"ROWS": 8, "BLOCK": 16}
    free = tunable(kernel, seen(kernels, kernels.column_totals, x, out, 64, 32, **blocks))
    assert {"ROWS", "BLOCK"} <= free.keys()
    launch = {"grid": (2,), **blocks}
    free = tunable(kernel, seen(kernels, kernels.column_totals, x, out, 64, 32, **launch))
    assert free == {"ROWS": 8, "num_warps": 4, "num_stages": 3}
    tried = copies(kernels, kernels.column_totals, x, out, 64, 32, **launch)
    assert tried.measure({"ROWS": 32}, None)["state"] == "complete"


def test_a_block_that_the_grid_does_not_follow_stays(kernels):
    x = torch.rand(N)
    launch = seen(kernels, kernels.scale, x, x, N, BLOCK=32, grid=lambda meta: (N // 32,))
    assert tunable(Kernel.of(kernels.scale), launch) == {"num_warps": 4}
    with_all = seen(kernels, kernels.scale, x, x, N, BLOCK=32, grid=lambda meta: blocks(**meta))
    blocks = lambda BLOCK, **rest: (N // BLOCK,)  # noqa: E731, N803 - as scripts do
    assert tunable(Kernel.of(kernels.scale), with_all) == {"BLOCK": 32, "num_warps": 4}


def test_the_size_of_a_head_is_no_block(kernels):
    x, out = torch.rand(64, 16), torch.empty(64, 16)
    grid = lambda meta: (64 // meta["BLOCK"],)  # noqa: E731 - as scripts do
    launch = seen(kernels, kernels.heads, x, out, 64, 16, BLOCK=8, HEAD=16, grid=grid)
    kernel = Kernel.of(kernels.heads)
    assert tunable(kernel, launch) == {"BLOCK": 8, "num_warps": 4}
    assert held(kernel, launch) == ["HEAD"]
    told = copies(kernels, kernels.heads, x, out, 64, 16, BLOCK=8, HEAD=16, grid=grid)
    assert told.measure({"HEAD": 8}, None)["state"] == "wrong"


def test_sizes_that_are_compiled_in_are_no_blocks(kernels):
    x, sizes = torch.rand(4, N), {"STEPS": 4, "N": N, "BLOCK": 32}
    launch = seen(kernels, kernels.over_steps, x, torch.empty(4, N), **sizes)
    free = tunable(Kernel.of(kernels.over_steps), launch)
    assert free == {"BLOCK": 32, "num_warps": 4, "num_stages": 3}


# -- launches that are alike -----------------------------------------------------------------------


def test_a_number_that_always_changes_is_left_out(kernels):
    kernel = Kernel.of(kernels.scale)

    def launches(size, numbers):
        return [
            searching._Seen(
                kernel, {"x": f"float32[{size}]", "n": str(n), "BLOCK": "32"}, launches=1, ms=1.0
            )
            for n in numbers
        ]

    few, many = launches(8, (1, 2)), launches(9, range(5))
    merged = searching._merged([*few, *many])
    assert merged[:2] == few
    (whole,) = merged[2:]
    assert whole.texts == {"x": "float32[9]", "BLOCK": "32"}
    assert (whole.free, whole.launches, whole.ms) == ({"n"}, 5, 5.0)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"x": "f16[8]", "out": "f16[4]", "n": "5"}, "f16[8]"),  # both would be meant
        ({"x": "f16[8]", "out": "f16[4]", "n": "6"}, "tensor"),
        ({"x": "f16[8]", "out": "f16[4]"}, "f16[8]"),  # its number is another each time
        ({"x": "f16[4]", "out": "f16[4]", "n": "5"}, "tensor"),
    ],
)
def test_a_shape_is_left_out_where_no_other_launch_is_then_meant(kernels, other, expected):
    kernel = Kernel.of(kernels.scale)
    seen = searching._Seen(kernel, {"x": "f16[8]", "out": "f16[8]", "n": "5"})
    free = frozenset({"n"} - other.keys())
    found = [seen, searching._Seen(kernel, other, free=free)]
    assert searching._shortened(seen, found).texts["out"] == expected


def test_values_are_put_where_the_launch_has_them(kernels):
    kernel = Kernel.of(kernels.scale)
    change = Change.of(kernel, ("x", "out", 4, 32), {"BLOCK": 64, "num_warps": 8})
    assert change.placed(("x", "out", 4, 32)) == ("x", "out", 4, 64)
    assert change.by_name == {"num_warps": 8}


def test_a_script_is_known_to_launch_kernels(kernels):
    found = script_facts.triton_kernels()
    assert {"scale", "softmax", "tuned"} <= set(found)
    kernels.scale.device_caches = {}  # as of one that was never launched
    assert "scale" not in script_facts.triton_kernels()
