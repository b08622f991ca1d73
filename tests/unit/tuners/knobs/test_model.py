"""Memory format, compilation and torch's global switches."""

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - torch may be missing

from gpuadvisor.tuners.knobs import _compile  # noqa: E402 - torch may be missing

HAS_ORDER = hasattr(torch._C, "_set_sdp_priority_order")


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


class TestChannelsLast:
    def test_weights_and_inputs(self, script):
        seen = []
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(2))
        model[0].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
        weight, target = model[0].weight, script(channels_last=True)
        target.call(model, torch.randn(2, 3, 8, 8)).sum().backward()
        assert model[0].weight is weight
        assert weight.is_contiguous(memory_format=torch.channels_last)
        assert seen[0].is_contiguous(memory_format=torch.channels_last)
        assert "channels_last" in target.details

    def test_two_and_three_dimensions_in_one_model(self, script):
        model = nn.ModuleDict({"a": nn.Conv2d(3, 4, 3), "b": nn.Conv3d(3, 4, 3)})
        model.forward = lambda image, video: (model["a"](image), model["b"](video))
        target = script(channels_last=True)
        image, video = torch.randn(1, 3, 8, 8), torch.randn(1, 3, 8, 8, 8)
        expected = model(image, video)
        for got, want in zip(target.call(model, image, video=video), expected, strict=True):
            torch.testing.assert_close(got, want)
        assert model["b"].weight.is_contiguous(memory_format=torch.channels_last_3d)

    def test_what_is_no_image_stays(self, script):
        model, target = net(), script(channels_last=True)
        target.call(model, torch.randn(2, 3, 4, 4))
        assert not target.details

    def test_a_script_that_does_it_itself(self, script):
        layout = {"memory_format": torch.channels_last}
        model, target = nn.Conv2d(3, 4, 3).to(**layout), script(channels_last=True)
        target.call(model, torch.randn(2, 3, 8, 8).to(**layout))
        assert not target.details


class TestSwitches:
    def test_tf32(self, script):
        target = script(tf32=True)
        target.call(net(), torch.ones(1, 4))
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cuda.matmul.allow_tf32
        assert "tf32" in target.details

    def test_tf32_that_the_script_has_already(self, script):
        target = script(tf32=True)
        torch.backends.cuda.matmul.allow_tf32 = True
        target.call(net(), torch.ones(1, 4))
        assert not target.details

    @pytest.mark.skipif(
        not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="new in torch 2.9"
    )
    def test_tf32_set_by_the_script_with_the_new_api(self, script):
        target = script(tf32=True)
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        try:
            target.call(net(), torch.ones(1, 4))
        finally:
            torch.backends.cuda.matmul.fp32_precision = "ieee"
        assert "itself" in target.refusals["tf32"]

    def test_cudnn_benchmark(self, script):
        target = script(cudnn_benchmark=True)
        target.call(net(), torch.ones(1, 4))
        assert torch.backends.cudnn.benchmark
        assert "cudnn_benchmark" in target.details

    def test_cudnn_benchmark_of_a_deterministic_script(self, script, monkeypatch):
        monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
        target = script(cudnn_benchmark=True)
        target.call(net(), torch.ones(1, 4))
        assert not torch.backends.cudnn.benchmark
        assert "deterministic" in target.refusals["cudnn_benchmark"]

    @pytest.mark.skipif(not HAS_ORDER, reason="torch has no order of kernels before 2.6")
    @pytest.mark.parametrize("value", ["cudnn", "flash", "efficient"])
    def test_sdpa_backend(self, script, value):
        from torch.nn.attention import SDPBackend

        before = set(torch._C._get_sdp_priority_order())
        target = script(sdpa_backend=value)
        target.call(net(), torch.ones(1, 4))
        order = torch._C._get_sdp_priority_order()
        assert SDPBackend(order[0]).name.lower() == f"{value}_attention"
        assert set(order) == before and len(order) == len(before)

    def test_threads(self, script):
        torch.set_num_threads(2)
        target = script(cpu_threads=1)
        target.call(net(), torch.ones(1, 4))
        assert torch.get_num_threads() == 1
        assert "cpu_threads" in target.details

    @pytest.mark.parametrize(("own", "effective"), [(1, True), (2, False)])
    def test_threads_that_torch_takes_by_itself_and_the_script_would_not(
        self, script, own, effective
    ):
        torch.set_num_threads(2)
        target = script(cpu_threads=2)
        torch.set_num_threads(own)
        target.call(net(), torch.ones(1, 4))
        assert torch.get_num_threads() == 2
        assert ("cpu_threads" in target.details) == effective

    @pytest.mark.parametrize(
        ("value", "effective"), [("expandable_segments:True", True), ("", False)]
    )
    def test_allocator(self, script, value, effective, monkeypatch):
        monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
        monkeypatch.setenv("PYTORCH_ALLOC_CONF", value)
        target = script(allocator="expandable_segments")
        assert ("allocator" in target.details) == effective


class TestCompile:
    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch):
        """Trace, but generate no code: the knob is under test, not Inductor."""
        torch._dynamo.reset()
        options = {"default": {"backend": "eager"}}
        monkeypatch.setattr(_compile, "OPTIONS", options)

    def test_identity_results_and_state(self, script):
        model, x = net(), torch.randn(3, 4)
        expected, keys = model(x), list(model.state_dict())
        target = script(compile="default")
        torch.testing.assert_close(target.call(model, x), expected)
        assert list(model.state_dict()) == keys
        assert "compile" in target.details

    def test_copies_and_pickles(self, script):
        model, x = nn.Sequential(nn.Linear(4, 2)), torch.randn(3, 4)
        target = script(compile="default", bf16_autocast=True, channels_last=True)
        target.call(model, x)
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        twins = [
            copy.deepcopy(model),
            pickle.loads(pickle.dumps(model)),
            torch.load(buffer, weights_only=False),
        ]
        for twin in twins:
            torch.testing.assert_close(twin(x), model(x))

    @pytest.mark.parametrize("how", [lambda m: m.compile(backend="eager"), lambda m: None])
    def test_a_model_that_the_script_compiled(self, script, how):
        model = net()
        how(model)
        own = model._compiled_call_impl
        target = script(compile="default")
        target.call(
            torch.compile(model, backend="eager") if own is None else model, torch.ones(1, 4)
        )
        assert model._compiled_call_impl is own
        assert not target.details

    def test_a_forked_worker_compiles_nothing(self, script, monkeypatch):
        target = script(compile="default")
        monkeypatch.setattr("os.getpid", lambda: -1)
        model = net()
        target.call(model, torch.ones(1, 4))
        assert model._compiled_call_impl is None

    @pytest.mark.parametrize("wrapped", [True, False], ids=["own class", "bare nn.Sequential"])
    def test_one_graph_and_no_recompilation(self, script, wrapped):
        from torch._dynamo.utils import counters

        class Net(nn.Sequential):
            def forward(self, x):
                return super().forward(x)

        counters.clear()
        cls = Net if wrapped else nn.Sequential
        model = cls(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2))
        target = script(compile="default", bf16_autocast=True, channels_last=True)
        optimizer = target.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
        for _ in range(6):
            optimizer.zero_grad()
            target.backward(target.call(model, torch.randn(2, 3, 8, 8)).sum())
            optimizer.step()
        assert counters["stats"]["unique_graphs"] == 1


class TestCudaGraphs:
    """Without CUDA there are no graphs: what must hold is when a new step is marked."""

    @pytest.fixture
    def target(self, script, monkeypatch):
        monkeypatch.setattr(_compile, "OPTIONS", {"cudagraphs": {"backend": "eager"}})
        torch._dynamo.reset()
        return script(compile_cudagraphs="cudagraphs")

    @pytest.fixture
    def marks(self, monkeypatch):
        marks = []
        monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: marks.append(1))
        return marks

    def test_training_marks_nothing(self, target, marks):
        model = net()
        for _ in range(12):
            target.backward(target.call(model, torch.ones(2, 4)).sum())
        assert not marks

    def test_inference_that_forgot_no_grad(self, target, marks):
        model = net()
        for _ in range(12):
            target.call(model, torch.ones(2, 4))
        assert len(marks) == 4

    def test_inference_without_gradients(self, target, marks):
        model = net()
        with torch.no_grad():
            for _ in range(12):
                target.call(model, torch.ones(2, 4))
        assert not marks
