"""Knobs of the DataLoader, and of copies to the GPU."""

import multiprocessing

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - torch may be missing
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset  # noqa: E402 - torch may be missing

from gpuadvisor.tuners.knobs.dataloader_workers import KNOB  # noqa: E402 - no torch

DATA = TensorDataset(torch.arange(256.0).reshape(64, 4))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(4))


class TestLoaders:
    def test_workers(self, script):
        target = script(dataloader_workers=2)
        loader = target.loader(DATA, batch_size=8)
        assert (loader.num_workers, loader.prefetch_factor) == (2, 2)
        assert len(list(loader)) == 8
        assert "dataloader_workers" in target.details

    @pytest.mark.parametrize(
        ("default", "chosen", "expected"),
        [
            ("fork", None, None),
            ("forkserver", None, "fork"),  # from Python 3.14 on
            ("forkserver", "forkserver", "fork"),  # something has begun a process before
            ("forkserver", "spawn", None),
        ],
    )
    def test_workers_are_forked_where_the_script_had_none_and_chose_nothing_else(
        self, script, monkeypatch, default, chosen, expected
    ):
        monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: [default, "fork"])
        monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: chosen)
        loader = script(dataloader_workers=2).loader(DATA)
        context = loader.multiprocessing_context
        assert (context and context.get_start_method()) == expected
        assert ("multiprocessing_context" in KNOB.snippet(2)) is (expected is not None)
        own = script(dataloader_workers=2).loader(DATA, num_workers=1)
        assert own.multiprocessing_context is None

    def test_no_workers_takes_away_what_only_they_can_do(self, script):
        target = script(dataloader_workers=0)
        loader = target.loader(
            DATA,
            num_workers=2,
            prefetch_factor=4,
            persistent_workers=True,
            timeout=9,
            multiprocessing_context="spawn",
        )
        assert (loader.num_workers, loader.persistent_workers, loader.timeout) == (0, False, 0)
        assert len(list(loader)) == 64

    @pytest.mark.parametrize(
        ("dataset", "own"), [(Stream(), 0), (DATA, 2)], ids=["stream", "already so"]
    )
    def test_workers_that_change_nothing(self, script, dataset, own):
        target = script(dataloader_workers=2)
        assert target.loader(dataset, num_workers=own).num_workers == own
        assert not target.details

    def test_settings_of_workers_follow_the_workers(self, script):
        settings = {"dataloader_workers": 1, "persistent_workers": True, "prefetch_factor": 4}
        target = script(**settings)
        loader = target.loader(DATA, batch_size=32)
        assert (loader.prefetch_factor, loader.persistent_workers) == (4, True)
        assert set(target.details) == set(settings)

    def test_settings_of_workers_without_workers(self, script):
        target = script(persistent_workers=True, prefetch_factor=4)
        assert target.loader(DATA).prefetch_factor is None
        assert not target.details

    def test_pinning(self, script):
        target = script(pin_memory=True)
        assert target.loader(DATA).pin_memory
        assert "pin_memory" in target.details

    @pytest.mark.parametrize("wrap", [lambda data: data, lambda data: Subset(data, [0])])
    def test_data_that_is_on_the_gpu_already(self, script, wrap):
        class OnGpu:
            is_cuda = True

            def size(self, dimension):
                return 4

        target = script(dataloader_workers=2, pin_memory=True)
        loader = target.loader(wrap(TensorDataset(OnGpu())))
        assert (loader.num_workers, loader.pin_memory) == (0, False)
        assert "on the GPU already" in target.refusals["dataloader_workers"]

    def test_batch_size(self, script):
        target = script(batch_size=4)
        assert target.loader(DATA, batch_size=8).batch_size == 32
        assert target.details == {"batch_size": "8 to 32"}
        assert target.loader(Stream(), batch_size=2).batch_size == 8

    @pytest.mark.parametrize(
        "arguments",
        [{"batch_size": None}, {"batch_sampler": [[0, 1]]}, {"batch_size": 32}],
        ids=["none", "own sampler", "more than the data"],
    )
    def test_batches_that_cannot_grow(self, script, arguments):
        target = script(batch_size=4)
        built = target.loader(DATA, **arguments)
        assert built.batch_size == DataLoader(DATA, **arguments).batch_size
        assert not target.details


class TestCopies:
    """CUDA is not here: what must hold is that nothing else changes."""

    def test_other_conversions_are_as_before(self, script):
        target = script(pin_memory=True)
        x = torch.ones(2)
        assert x.to(torch.float64).dtype is torch.float64
        assert x.to("cpu") is x
        assert x.to(torch.ones(1, dtype=torch.int8)).dtype is torch.int8
        assert nn.Linear(1, 1).to(torch.float64).weight.dtype is torch.float64
        assert not target.details

    def test_dynamo_does_not_see_them(self, script):
        from torch._dynamo.utils import counters

        script(pin_memory=True)
        counters.clear()
        torch._dynamo.reset()

        def script(x):
            return torch.Tensor.to(x.to(torch.float64).to("cpu"), torch.float32) * 2

        compiled = torch.compile(script, backend="eager", fullgraph=True)
        for _ in range(3):
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
        assert counters["stats"]["unique_graphs"] == 1
        assert not counters["graph_break"]
