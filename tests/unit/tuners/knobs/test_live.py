"""Knobs turned on and off between two steps of a script that trains."""

import random
from importlib import import_module

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - torch may be missing
from torch.nn import functional  # noqa: E402 - torch may be missing

from gpuadvisor.collectors.script.child.counters import Counters  # noqa: E402 - the same
from gpuadvisor.collectors.script.child.patches import note_compilation  # noqa: E402 - the same
from gpuadvisor.collectors.script.child.registry import KnobTarget, Registry  # noqa: E402 - same
from gpuadvisor.collectors.script.child.roots import Roots  # noqa: E402 - the same
from gpuadvisor.collectors.script.child.script_facts import FactsRecorder  # noqa: E402 - same
from gpuadvisor.tuners.base import Knob  # noqa: E402 - torch may be missing
from gpuadvisor.tuners.knobs import _compile, _live, load_knobs, tf32  # noqa: E402 - torch may be missing
from tests.unit.tuners.knobs.conftest import kernel_order  # noqa: E402 - torch may be missing

UNABLE = {"sdpa_backend"} if kernel_order() is None else set()
"""What this torch cannot do, and the knob says so."""
KNOBS = {
    name: knob
    for name, knob in load_knobs().items()
    if type(knob).live is not Knob.live and name not in UNABLE
}
CASES = [
    (name, value)
    for name, knob in KNOBS.items()
    if name != "compile_max_autotune"  # as `compile` with other options
    for value in (knob.plausible if isinstance(knob.plausible, tuple) else (2,))
]
COMPILED = {"compile", "compile_cudagraphs", "compile_max_autotune"}
every_case = pytest.mark.parametrize(("name", "value"), CASES)
gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
    pytest.mark.filterwarnings("default"),  # compilers and CUDA graphs warn of many things
]
NOT_ON_GPU = {"compile", "compile_max_autotune", "cpu_threads"}
"""Not run there: what compiles for minutes, or counts on the CPU only."""
everywhere = pytest.mark.parametrize(
    ("name", "value", "device"),
    [(name, value, "cpu") for name, value in CASES]
    + [
        pytest.param(name, value, "cuda", marks=gpu)
        for name, value in CASES
        if name not in NOT_ON_GPU
    ],
)


class Net(nn.Module):
    """Convolutions of two ranks, attention, a buffer, and random numbers."""

    def __init__(self):
        super().__init__()
        self.image, self.video = nn.Conv2d(3, 8, 3), nn.Conv3d(3, 8, (1, 3, 3))
        self.norm, self.out = nn.BatchNorm2d(8), nn.Linear(16, 4)

    def forward(self, x):
        x = self.norm(self.image(x)) + self.video(x[:, :, None]).squeeze(2)
        x = functional.dropout(x, 0.1, self.training).flatten(2).reshape(len(x), -1, 16)
        return self.out(functional.scaled_dot_product_attention(x, x, x).mean(1))


class Script:
    """What a script has, and how it trains."""

    def __init__(self, target, device="cpu"):
        torch.manual_seed(0)
        random.seed(0)
        self.target, self.device = target, device
        self.models, self.optimizers = [], []
        self.add()

    def add(self):
        model = Net().to(self.device)
        build, optim = self.target.optimizer, torch.optim
        self.models.append(model)
        self.optimizers += [
            build(optim.Adam, [*model.image.parameters(), model.norm.weight], lr=1e-3),
            build(optim.SGD, model.video.parameters(), lr=1e-2, momentum=0.9),
            build(optim.AdamW, [model.norm.bias, *model.out.parameters()], amsgrad=True),
        ]

    def loss(self):
        x = torch.randn(4, 3, 10, 10, device=self.device)
        return sum(self.target.call(model, x).square().mean() for model in self.models)

    def step(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss = self.loss()
        self.target.backward(loss)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()

    def random(self):
        on_gpu = torch.cuda.get_rng_state_all() if self.device == "cuda" else []
        return [state.tolist() for state in (torch.get_rng_state(), *on_gpu)]

    def state(self, describe):
        """Describe every tensor, flag and random number."""
        matmul, backends = torch.backends.cuda.matmul, torch.backends
        tensors = [t for m in self.models for t in (*m.parameters(), *m.buffers())]
        kept = [s[p] for s in (o.state for o in self.optimizers) for p in s]
        return {
            "tensors": [(id(t), describe(t)) for t in tensors],
            "gradients": [describe(getattr(t, "grad", None)) for t in tensors],
            "optimizers": [[(key, describe(value)) for key, value in d.items()] for d in kept],
            "identities": [[id(value) for value in d.values()] for d in kept],
            "groups": [
                {key: value for key, value in d.items() if key != "params"}
                for o in self.optimizers
                for d in (o.defaults, *o.param_groups)
            ],
            "attributes": [sorted(vars(o)) for o in self.optimizers],
            "random": (describe(self.random()), random.getstate()),
            "flags": (
                *(torch.get_num_threads(), torch.get_float32_matmul_precision()),
                *(getattr(m, "fp32_precision", None) for m in (matmul, backends.mkldnn, backends)),
                getattr(getattr(backends.mkldnn, "matmul", None), "fp32_precision", None),
                *(matmul.allow_tf32, backends.cudnn.allow_tf32, backends.cudnn.benchmark),
                *(kernel_order(), torch.get_default_dtype()),
                torch._dynamo.config.cache_size_limit,
                *(torch.is_autocast_enabled(device) for device in ("cpu", "cuda")),
            ),
        }


def exact(tensor):
    if not isinstance(tensor, torch.Tensor):
        return tensor
    content = tensor.detach().cpu().contiguous().numpy().tobytes()
    return layout(tensor), tensor.data_ptr(), content


def layout(tensor):
    if not isinstance(tensor, torch.Tensor):
        return None
    return tensor.dtype, tensor.device, tuple(tensor.shape), tensor.stride()


def live(target, name):
    """Return the turn of a knob, which is off."""
    return KNOBS[name].live(target.seen_by(name))


@pytest.fixture(autouse=True)
def quick(monkeypatch, request):
    """Trace, but generate no code, without a GPU: the knobs are under test, not Inductor."""
    torch.set_num_threads(1)  # several wait for each other on a busy machine
    torch._dynamo.reset()
    for matmul in tf32._matmuls():
        matmul.fp32_precision = "none"  # as it is until the first setting
    monkeypatch.setattr(_live, "TRACED", {})
    monkeypatch.setattr(_compile, "TRACED", _live.TRACED)
    if "gpu" in request.keywords:
        monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    else:
        values = [value for name in COMPILED for value in KNOBS[name].plausible]
        monkeypatch.setattr(_compile, "OPTIONS", {v: {"backend": "eager"} for v in values})


def test_which_knobs_there_are():
    flags = {"tf32", "sdpa_backend", "cpu_threads", "fused_optimizer", "triton_kernels"}
    assert KNOBS.keys() | UNABLE == flags | COMPILED | {"bf16_autocast", "channels_last"}


@everywhere
class TestOffAgain:
    def test_everything_is_bit_for_bit_what_it_was(self, script, name, value, device):
        turn = live(target := script(), name)
        trains = Script(target, device)
        for _ in range(3):
            trains.step()
        before = trains.state(exact)
        others = [other for knob, other in CASES if knob == name]
        for wanted in (value, None, value, value, None, None, *others, None):
            turn(wanted)
        assert trains.state(exact) == before

    def test_losses_are_those_without_turns(self, script, name, value, device):
        losses = []
        for turned in (False, True):
            turn = live(target := script(), name)
            trains = Script(target, device)
            losses.append([])
            for _ in range(4):
                losses[-1].append(trains.step())
                for wanted in (value, None) if turned else ():
                    turn(wanted)
        assert losses[0] == losses[1]

    def test_only_values_differ_after_steps(self, script, name, value, device):
        turn = live(target := script(), name)
        trains = Script(target, device)
        for _ in range(3):
            trains.step()
        before = trains.state(layout)
        turn(value)
        losses = [trains.step() for _ in range(2)]
        assert name in target.details or value == "flash"  # first anyway, here
        turn(None)
        assert trains.state(layout) == before
        assert all(torch.isfinite(torch.tensor([*losses, trains.step()])))


@pytest.mark.parametrize(
    ("name", "value"),
    [case for case in CASES if case[0] in ("channels_last", "fused_optimizer", "bf16_autocast")]
    + [("compile", "default")],
)
class TestFromTheStart:
    """A proof turns on what a plan applies: before the first call, when optimizers are built."""

    def test_a_script_that_is_turned_on_at_its_start_is_as_one_that_had_it_applied(
        self, script, name, value
    ):
        def described(tensor):
            is_tensor = isinstance(tensor, torch.Tensor)
            return (layout(tensor), tensor.tolist()) if is_tensor else tensor

        seen = []
        for applied in (True, False):
            target = script()
            if applied:
                KNOBS[name].apply(value, target.seen_by(name))
                trains = Script(target)
            else:
                turn = live(target, name)
                trains = Script(target)
                turn(value)
            losses = [trains.step() for _ in range(3)]
            state = trains.state(described)
            tensors = [content for _, content in state.pop("tensors")]
            del state["identities"], state["attributes"]  # torch notes what it has checked
            seen.append((losses, tensors, state))
        assert seen[0] == seen[1]
        turn(None)
        assert torch.isfinite(torch.tensor(trains.step()))

    def test_once_it_is_off_it_is_as_a_script_that_never_had_it(self, script, name, value):
        states = []
        for is_turned in (False, True):
            turn = live(target := script(), name)
            trains = Script(target)
            if is_turned:
                turn(value)
            for _ in range(2):
                trains.step()
            turn(None)
            trains.step()
            state = trains.state(layout)
            state["tensors"] = [each for _, each in state["tensors"]]
            del state["identities"]
            states.append(state)
        assert states[0] == states[1]


@pytest.mark.parametrize("order", [1, -1])
def test_several_at_once(script, order):
    target = script()
    turns = {name: live(target, name) for name in KNOBS}
    trains = Script(target)
    for _ in range(3):
        trains.step()
    before, exactly = trains.state(layout), trains.state(exact)
    on = {name: value for name, value in CASES if name not in COMPILED} | {"compile": "default"}
    for steps in (0, 2):
        for name, value in on.items():
            turns[name](value)
        for _ in range(steps):
            trains.step()
        for name in list(on)[::order]:
            turns[name](None)
        assert steps or trains.state(exact) == exactly
    assert trains.state(layout) == before


@every_case
def test_what_appears_while_it_is_on(script, name, value):
    turn = live(target := script(), name)
    trains = Script(target)
    trains.step()
    before = trains.state(layout)
    turn(value)
    trains.add()
    trains.step()
    old, new = trains.models
    for one, other in zip(old.parameters(), new.parameters(), strict=True):
        assert one.stride() == other.stride() and one.grad.stride() == other.grad.stride()
    groups = trains.state(layout)["groups"]
    assert groups[: len(groups) // 2] == groups[len(groups) // 2 :]
    turn(None)
    after = trains.state(layout)
    for state in (before, after):
        state["tensors"] = [described for _, described in state["tensors"]]
    for kind in ("tensors", "gradients", "optimizers", "groups"):
        assert after[kind] == before[kind] * 2, kind


@every_case
def test_a_graph_that_is_alive_when_it_is_turned(script, name, value):
    results = []
    for turned in ((), (value,), (value, None)):
        turn = live(target := script(), name)
        trains = Script(target)
        trains.step()
        loss = trains.loss()
        for wanted in turned:
            turn(wanted)
        target.backward(loss)
        turn(None)
        results.append([p.grad for m in trains.models for p in m.parameters()])
    for found in results[1:]:
        for mine, plain in zip(found, results[0], strict=True):
            torch.testing.assert_close(mine, plain)


@every_case
def test_a_script_that_only_infers(script, name, value):
    turn = live(target := script(), name)
    trains = Script(target)
    with torch.inference_mode():
        trains.loss()
        before = trains.state(exact)
        turn(value)
        turn(None)
        assert trains.state(exact) == before
        turn(value)
        trains.loss()
        turn(None)
    trains.step()


class TestEffect:
    """What a step sees before and while a knob is on, and again afterwards."""

    @pytest.fixture
    def seen(self, script):
        """Return what asks in three forward passes: before, while and after a knob is on."""

        def seen(name, value, ask):
            turn = live(target := script(), name)
            trains, answers = Script(target), []
            trains.models[0].norm.register_forward_hook(
                lambda module, args, output: answers.append(ask(trains.models[0], args[0]))
            )
            for wanted in (None, value, None):
                turn(wanted)
                trains.step()
            assert answers[0] == answers[2]
            return answers[:2]

        return seen

    def test_bf16_autocast(self, seen):
        types = seen("bf16_autocast", True, lambda net, x: x.dtype)
        assert types == [torch.float32, torch.bfloat16]

    def test_cpu_threads(self, seen):
        assert seen("cpu_threads", 2, lambda *_: torch.get_num_threads()) == [1, 2]

    def test_tf32(self, seen):
        precisions = seen("tf32", True, lambda *_: torch.get_float32_matmul_precision())
        assert precisions == ["highest", "high"]

    @pytest.mark.skipif(kernel_order() is None, reason="torch has no such order before 2.6")
    def test_sdpa_backend(self, seen):
        orders = seen("sdpa_backend", "efficient", lambda *_: kernel_order())
        assert orders[1][0] == int(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION)
        assert sorted(orders[0]) == sorted(orders[1])

    def test_channels_last(self, seen):
        image = {"memory_format": torch.channels_last}
        video = {"memory_format": torch.channels_last_3d}
        layouts = seen(
            "channels_last",
            True,
            lambda net, x: (
                x.is_contiguous(**image),
                net.image.weight.is_contiguous(**image),
                net.video.weight.is_contiguous(**video),
                net.image.weight.data_ptr(),
            ),
        )
        assert [layout[:3] for layout in layouts] == [(False,) * 3, (True,) * 3]
        assert layouts[0][3] == layouts[1][3]

    @pytest.mark.parametrize("value", ["fused", "foreach"])
    def test_fused_optimizer(self, script, value, monkeypatch):
        turn = live(target := script(), "fused_optimizer")
        trains, called = Script(target), []
        kind = {"fused": "fused", "foreach": "multi_tensor"}[value]
        for name in ("adam", "sgd"):
            module, function = import_module(f"torch.optim.{name}"), f"_{kind}_{name}"
            real = getattr(module, function)

            def spied(*args, name=name, real=real, **kwargs):
                called.append(name)
                return real(*args, **kwargs)

            monkeypatch.setattr(module, function, spied)
        for wanted in (None, value, None):
            turn(wanted)
            trains.step()
            if wanted:
                assert {"adam", "sgd"} <= set(called)
                times = len(called)
        assert len(called) == times

    @pytest.mark.skipif(kernel_order() is None, reason="torch has no such order before 2.6")
    def test_compiled_once_for_each_setting(self, script):
        from torch._dynamo.utils import counters

        target = script()
        turn = live(target, "compile_max_autotune")
        settings = {"bf16_autocast": True, "tf32": True, "channels_last": True}
        settings |= {"sdpa_backend": "efficient", "cpu_threads": 2}
        turns = {other: live(target, other) for other in settings}
        trains, graphs = Script(target), []
        counters.clear()
        trains.step()
        assert not counters["stats"]["unique_graphs"]
        for other in [*settings, *settings]:
            turns[other](settings[other])
            for value in (*KNOBS["compile_max_autotune"].plausible, None):
                turn(value)
                trains.step()
            turns[other](None)
            graphs.append(counters["stats"]["unique_graphs"])
        assert graphs == [2, 4, 6, 8, 10, 10, 10, 10, 10, 10]

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:The .grad attribute")
    def test_compiled_under_many_settings_behind_a_graph_break(self, script):
        from torch._dynamo.utils import counters

        class Broken(nn.Linear):
            def forward(self, x):
                x = super().forward(x)
                torch._dynamo.graph_break()
                return x.sin()

        target, model = script(), Broken(4, 4)
        compiled, threads = live(target, "compile"), live(target, "cpu_threads")
        target.call(model, torch.ones(1, 4))
        compiled("default")
        counters.clear()
        for value in range(1, 11):
            threads(value)
            target.call(model, torch.ones(1, 4))
        assert counters["stats"]["unique_graphs"] == 20

    def test_a_layout_is_no_shape_that_varies(self, script, monkeypatch):
        sizes = []

        def backend(graph, inputs):
            sizes.extend(
                size
                for tensor in inputs
                if hasattr(tensor, "shape")
                for size in (*tensor.shape, *tensor.stride())
            )
            return graph.forward

        monkeypatch.setattr(_compile, "OPTIONS", {"default": {"backend": backend}})
        target = script()
        turns = [live(target, name) for name in ("compile", "channels_last")]
        trains = Script(target)
        turns[0]("default")
        for wanted in (None, True, None, True):
            turns[1](wanted)
            trains.step()
        assert sizes and all(type(size) is int for size in sizes)


@pytest.mark.skipif(kernel_order() is None, reason="torch 2.4's eager backend calls parts, too")
def test_in_the_harness(monkeypatch):
    """All that can be turned stands around a root that the script calls, and none is in the way."""
    monkeypatch.setattr(nn.Module, "__call__", nn.Module.__call__)
    for where, name in ((torch.jit, "script"), (torch, "compile"), (nn.Module, "compile")):
        monkeypatch.setattr(where, name, getattr(where, name))
    said, facts, called = [], FactsRecorder(torch), []
    registry = Registry(lambda *words: said.append(words))
    turns = {name: knob.live(KnobTarget(name, registry)) for name, knob in KNOBS.items()}
    roots = Roots(torch, registry, Counters(), lambda module, *_: called.append(module))
    roots.look()
    note_compilation(torch, registry, facts, roots.compiled, lambda *_: called.append("compiled"))
    model, x, seen = Net(), torch.randn(2, 3, 10, 10), []
    expected = model.eval()(x)
    model.norm.register_forward_hook(lambda norm, args, out: seen.append(out.dtype))
    on = {"bf16_autocast": True, "channels_last": True, "compile": "default"}
    for names in ([*on], ["compile"], ["channels_last", "compile"], []):
        for name, turn in turns.items():
            turn(on[name] if name in names else None)
        torch.testing.assert_close(model(x), expected, rtol=0.1, atol=0.1)
    assert seen == [torch.bfloat16] + [torch.float32] * 3
    assert called == [model] * 5 and not facts.compiles
    assert {(name, state) for name, state, _ in said} == {(name, "effective") for name in on}


class TestTheScriptsOwn:
    """What the script has set is left alone, and what it cannot have is said."""

    def test_tf32(self, script):
        turn = live(target := script(), "tf32")
        torch.set_float32_matmul_precision("medium")
        turn(True)
        assert torch.get_float32_matmul_precision() == "medium"
        turn(None)
        assert torch.get_float32_matmul_precision() == "medium"
        assert not target.details

    def test_tf32_set_while_it_is_on(self, script):
        turn = live(script(), "tf32")
        turn(True)
        torch.set_float32_matmul_precision("medium")
        turn(None)
        assert torch.get_float32_matmul_precision() == "medium"

    @pytest.mark.skipif(
        not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="new in torch 2.9"
    )
    def test_tf32_with_the_new_api(self, script):
        turn = live(script(), "tf32")
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        try:
            with pytest.raises(RuntimeError, match="itself"):
                turn(True)
            turn(None)
            assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        finally:
            torch.backends.cuda.matmul.fp32_precision = "none"

    def test_a_torch_without_an_order_of_kernels(self, script, monkeypatch):
        turn = load_knobs()["sdpa_backend"].live(script().seen_by("sdpa_backend"))
        with monkeypatch.context() as patch:
            patch.delattr(torch._C, "_set_sdp_priority_order", raising=False)
            with pytest.raises(RuntimeError, match=r"2\.6"):
                turn("flash")

    def test_a_torch_that_calls_its_modules_otherwise(self, script, monkeypatch):
        turn = live(target := script(), "compile")
        trains = Script(target)
        trains.step()
        with monkeypatch.context() as patch:
            patch.delattr(nn.Module, "_call_impl")
            with pytest.raises(RuntimeError, match="otherwise"):
                turn("default")
        trains.step()

    @pytest.mark.parametrize(
        ("value", "cls", "own"),
        [
            ("fused", torch.optim.Adam, {"foreach": True}),
            ("foreach", torch.optim.Adam, {"fused": True}),
            ("fused", torch.optim.Adam, {"differentiable": True}),
            ("foreach", torch.optim.Adam, {"lr": torch.tensor(0.1)}),
            ("fused", torch.optim.RMSprop, {}),
            ("fused", torch.optim.Adagrad, {}),
            ("foreach", torch.optim.LBFGS, {}),
        ],
    )
    def test_optimizers(self, script, value, cls, own):
        turn = live(target := script(), "fused_optimizer")
        optimizer = target.optimizer(cls, nn.Linear(2, 2).parameters(), **own)
        before = [
            dict(optimizer.defaults),
            *map(dict, optimizer.param_groups),
            sorted(vars(optimizer)),
        ]
        turn(value)
        assert before == [optimizer.defaults, *optimizer.param_groups, sorted(vars(optimizer))]
        assert not target.details

    def test_parameters_that_an_optimizer_is_given_later(self, script):
        turn = live(target := script(), "fused_optimizer")
        optimizer = target.optimizer(torch.optim.Adam, nn.Linear(2, 2).parameters())
        turn("fused")
        optimizer.add_param_group({"params": [*nn.Linear(2, 2).parameters()]})
        assert [group["fused"] for group in optimizer.param_groups] == [True, True]
        turn(None)
        assert not any(group["fused"] for group in (optimizer.defaults, *optimizer.param_groups))

    def test_a_counter_in_double_precision(self, script):
        turn = live(target := script(), "fused_optimizer")
        torch.set_default_dtype(torch.float64)
        try:
            trains = Script(target)
            trains.step()
            before = trains.state(exact)
            turn("fused")
            turn(None)
            assert trains.state(exact) == before
            layouts = trains.state(layout)
            turn("fused")
            trains.add()
            trains.step()
            turn(None)
            assert trains.state(layout)["optimizers"] == layouts["optimizers"] * 2
        finally:
            torch.set_default_dtype(torch.float32)

    def test_a_state_of_another_layout_than_its_weight(self, script):
        turn = live(target := script(), "channels_last")
        trains = Script(target)
        trains.step()
        weight = trains.models[0].image.weight
        state = trains.optimizers[0].state[weight]
        state["exp_avg"] = state["exp_avg"].to(memory_format=torch.channels_last)
        before = trains.state(exact)
        turn(True)
        assert weight.stride() == state["exp_avg"].stride() == state["exp_avg_sq"].stride()
        turn(None)
        assert trains.state(exact) == before

    def test_a_root_that_is_gone_while_its_weights_are_not(self, script):
        turn = live(target := script(), "channels_last")
        layer = nn.Conv2d(3, 4, 3)
        target.call(nn.Sequential(layer), torch.randn(1, 3, 8, 8)).sum().backward()
        target._roots.clear()
        before = exact(layer.weight), exact(layer.weight.grad)
        turn(True)
        target.call(nn.Sequential(layer), torch.randn(1, 3, 8, 8))
        target._roots.clear()
        assert layer.weight.is_contiguous(memory_format=torch.channels_last)
        turn(None)
        assert (exact(layer.weight), exact(layer.weight.grad)) == before

    def test_a_weight_of_repeated_elements_stays(self, script):
        turn = live(target := script(), "channels_last")
        layer, x = nn.Conv2d(3, 4, 3), torch.randn(1, 3, 8, 8)
        layer.weight.data = torch.randn(1, 3, 3, 3).expand(4, 3, 3, 3)
        expected, before = target.call(layer, x), exact(layer.weight)
        for wanted in (True, None):
            turn(wanted)
            assert exact(layer.weight) == before
            torch.testing.assert_close(target.call(layer, x), expected)

    def test_weights_with_one_memory(self, script):
        turn = live(target := script(), "channels_last")
        one, other = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)
        other.weight.data = one.weight.data
        for model in (one, other):
            target.call(model, torch.ones(1, 3, 8, 8))
        before = one.weight.clone()
        with pytest.raises(RuntimeError, match="share"):
            turn(True)
        assert one.weight.is_contiguous() and torch.equal(one.weight, before)

    def test_weights_that_share_a_buffer_without_overlap(self, script):
        turn = live(target := script(), "channels_last")
        model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.Conv2d(4, 2, 3, bias=False))
        flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        torch.nn.utils.vector_to_parameters(flat, model.parameters())
        x, content = torch.randn(1, 3, 8, 8), flat.clone()
        expected = target.call(model, x)
        turn(True)
        torch.testing.assert_close(target.call(model, x), expected)
        assert not torch.equal(flat, content)
        turn(None)
        assert torch.equal(flat, content) and torch.equal(target.call(model, x), expected)

    def test_a_model_that_the_script_compiled(self, script):
        turn = live(target := script(), "compile")
        model = nn.Sequential(nn.Linear(4, 2))
        model.compile(backend="eager")
        own = model._compiled_call_impl
        turn("default")
        target.call(model, torch.ones(1, 4))
        assert model._compiled_call_impl is own and not target.details


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
class TestOnGpu:
    def test_steps_are_counted_where_a_fused_optimizer_does(self, script):
        turn = live(target := script(), "fused_optimizer")
        trains = Script(target, "cuda")
        for wanted, device in ((None, "cpu"), ("fused", "cuda"), (None, "cpu")):
            turn(wanted)
            trains.step()
            states = [state for o in trains.optimizers for state in o.state.values()]
            steps = [state["step"] for state in states if "step" in state]
            assert {step.device.type for step in steps} == {device}
        assert {step.item() for step in steps} == {3}

    def test_products_in_tf32(self, script):
        turn, x = live(script(), "tf32"), torch.randn(512, 512, device="cuda")
        products = []
        for wanted in (None, True, None):
            turn(wanted)
            products.append(x @ x)
        assert torch.equal(products[0], products[2])
        assert not torch.equal(products[0], products[1])

    # torch warms its pool of graphs with one that is empty.
    @pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
    @pytest.mark.filterwarnings(
        "ignore:TensorFloat32 tensor cores:UserWarning"
    )  # said once a process
    @pytest.mark.parametrize("value", KNOBS["compile_cudagraphs"].plausible)
    def test_graphs_under_other_settings(self, script, value):
        target = script()
        turns = {name: live(target, name) for name in KNOBS}
        trains, x = Script(target, "cuda"), torch.randn(4, 3, 10, 10, device="cuda")
        settings = {"channels_last": True, "fused_optimizer": "fused", "bf16_autocast": True}
        graphs = {"compile_cudagraphs": value}
        trains.step()
        for on in [graphs, settings, graphs | settings, {"tf32": True}, graphs] * 2:
            model = trains.models[0].eval()
            with torch.no_grad():
                expected = target.call(model, x)
                for name, turn in turns.items():
                    turn(on.get(name))
                for _ in range(4):
                    found = target.call(model, x)
            torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
            model.train()
            assert all(trains.step() < 100 for _ in range(4))
            for turn in turns.values():
                turn(None)

    @pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")  # torch 2.11's own
    def test_why_cudnn_benchmark_is_not_among_them(self, script):
        """A shape seen before is not timed anew: its plan is kept, whatever the flag says."""
        from torch.profiler import ProfilerActivity, profile

        torch.backends.cudnn.deterministic = False
        layer, counts = nn.Conv2d(16, 16, 3).cuda(), []
        for benchmark, size in ((False, 64), (False, 64), (True, 64), (True, 96)):
            torch.backends.cudnn.benchmark = benchmark
            x = torch.randn(8, 16, size, size, device="cuda")
            with profile(activities=[ProfilerActivity.CUDA]) as profiled:
                layer(x)
                torch.cuda.synchronize()
            counts.append(sum(event.count for event in profiled.key_averages()))
        assert counts[2] <= counts[1] + 2 < counts[3]
