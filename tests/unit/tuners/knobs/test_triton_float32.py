"""Launches with float32 in the place of 16 bits, which rounding is held against."""

import pytest

torch = pytest.importorskip("torch")

from gpuadvisor.tuners.knobs import load_knobs  # noqa: E402 - no torch
from gpuadvisor.tuners.knobs._triton.launches import Kernel, Line, parse_lines  # noqa: E402 - same

KNOB = load_knobs()["triton_kernels"]
ROWS, COLUMNS = 64, 16


def grid(meta):
    return (-(-ROWS // meta["ROWS"]),)


def line_of(launched, args, kwargs):
    kernel = Kernel.of(launched)
    return Line(kernel.name, kernel.texts(grid, args, kwargs), {"ROWS": 8})


def rows(dtype=torch.bfloat16):
    """Of which each moves a sum of 16 in bfloat16 by 1/8 or by nothing."""
    torch.manual_seed(3)
    return (0.01 + 0.09 * torch.rand(ROWS, COLUMNS)).to(dtype)


def launch(script, kernels, name, x, out, *more, in_float32=True, **given):
    """Launch a kernel of sums; return what stands there, and what the knob said."""
    kernel = getattr(kernels, name)
    args, kwargs = (x, out, *more), {"ROWS": 1, "BLOCK": COLUMNS, **given}
    value = str(line_of(kernel, args, kwargs))
    told = script(triton_kernels=KNOB.precise(value) if in_float32 else value)
    kernel[grid](*args, **kwargs)
    return told


def added(script, kernels, x, out, in_float32=True, **given):
    seen = torch.zeros(COLUMNS, dtype=torch.int32)
    more = (seen, ROWS, COLUMNS, given.pop("factor", 1.0))
    told = launch(script, kernels, "added", x, out, *more, in_float32=in_float32, **given)
    assert seen.tolist() == [1] * COLUMNS, "of other types nothing is copied"
    return told


def exact(x, start=16.0):
    return x.double().sum(0) + start


def test_the_value_names_the_same_launches(kernels):
    x = torch.ones(4, 8, dtype=torch.bfloat16)
    lines = [
        line_of(kernels.scale, (x, x, 32), {"BLOCK": 32}),
        line_of(kernels.scale, (x, x), {"BLOCK": 8}),
    ]
    value = "\n".join(map(str, lines))
    wide = parse_lines(KNOB.precise(value))
    assert [line.arguments for line in wide] == [line.arguments for line in lines]
    assert all(line.in_float32 and not line.values for line in wide)
    assert [Line.parse(str(line)) for line in wide] == wide
    assert KNOB.precise(value).endswith(" -> float32")


def test_no_plan_may_have_it(kernels):
    line = "train.scale@5083cf39(x: float32[8], BLOCK: 32) -> float32"
    assert KNOB.problem(line) == "it names no values"


def test_sums_are_rounded_once(script, kernels):
    x, out = rows(), torch.full((COLUMNS,), 16.0, dtype=torch.bfloat16)
    told = added(script, kernels, x, out)
    assert "triton_kernels" in told.details
    assert not told.refusals
    assert torch.equal(out, exact(x).to(torch.bfloat16))
    assert torch.equal(x, rows()), "what is read stays"


def test_without_it_they_are_rounded_again_and_again(script, kernels):
    x, out = rows(), torch.full((COLUMNS,), 16.0, dtype=torch.bfloat16)
    added(script, kernels, x, out, in_float32=False)
    assert not torch.equal(out, exact(x).to(torch.bfloat16))


def test_float32_is_left_as_it_is(script, kernels):
    x, out = rows(torch.float32), torch.full((COLUMNS,), 16.0)
    added(script, kernels, x, out)
    assert out.tolist() == pytest.approx(exact(x).tolist(), rel=1e-5)


def test_views_of_one_memory_are_views_of_one_copy(script, kernels):
    memory = torch.zeros(3 + ROWS * COLUMNS + COLUMNS, dtype=torch.bfloat16)
    x = memory[3 : 3 + ROWS * COLUMNS].view(ROWS, COLUMNS).copy_(rows())
    out = memory[3 + ROWS * COLUMNS :].fill_(16.0)
    added(script, kernels, x, out)
    assert torch.equal(out, exact(x).to(torch.bfloat16))
    assert torch.equal(x, rows())
    assert memory[:3].tolist() == [0.0] * 3


def test_it_works_within_a_step_of_autograd(script, kernels):
    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            out = torch.zeros(COLUMNS, dtype=x.dtype)
            context.save_for_backward(x, out)
            context.told = added(script, kernels, x.detach(), out)
            return out

        @staticmethod
        def backward(context, grad):
            x, _ = context.saved_tensors
            return grad.expand_as(x)

    x = rows().requires_grad_()
    Sum.apply(x).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"HOW": "in few bytes"}, "added in float32: ValueError: out of resource: shared memory"),
        ({"ROWS": 2, "out": "shared"}, "two of its arguments of different types share memory"),
    ],
)
def test_what_does_not_go_is_said_and_launched_as_it_is(script, kernels, given, said):
    x, out = rows(), torch.full((COLUMNS,), 16.0, dtype=torch.bfloat16)
    if given.pop("out", "") == "shared":
        memory = torch.cat([rows().view(torch.float16).flatten(), torch.zeros(COLUMNS).half()])
        x = memory[: ROWS * COLUMNS].view(torch.bfloat16).view(ROWS, COLUMNS)
        out = memory[ROWS * COLUMNS :]
    told = added(script, kernels, x, out, **given)
    assert said in told.refusals["triton_kernels"]
    assert bool((out != 0).all()), "launched all the same"


def test_what_may_compute_something_else_is_launched_as_it_is(script, kernels):
    x, out = rows(), torch.full((COLUMNS,), 16.0, dtype=torch.bfloat16)
    told = launch(script, kernels, "added_by_type", x, out, ROWS, COLUMNS)
    assert "may depend on the types of its arguments" in told.refusals["triton_kernels"]
    assert not told.details


def test_rules_see_the_types_of_the_script(script, kernels):
    x, out = rows(), torch.zeros(COLUMNS, dtype=torch.bfloat16)
    told = launch(script, kernels, "added_by_rule", x, out, ROWS, COLUMNS)
    assert "triton_kernels" in told.details
    biased = exact(x, start=ROWS * 2e-4)
    assert torch.equal(out, biased.to(torch.bfloat16))
    assert not torch.equal(out, exact(x, start=0.0).to(torch.bfloat16)), "a rule saw bfloat16"
