"""Autocast from outside, and the loss scaling that float16 needs."""

import copy
import dataclasses

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - torch may be missing

from gpuadvisor.tuners.knobs import fp16_autocast  # noqa: E402 - torch may be missing
from gpuadvisor.tuners.knobs._tensors import map_tensors  # noqa: E402 - torch may be missing


@dataclasses.dataclass(frozen=True)
class Frozen:
    logits: object
    note: str = "kept"


class Layers(nn.Module):
    """Returns its hidden state and its result in the container that it is given."""

    def __init__(self, pack=lambda hidden, result: result):
        super().__init__()
        self.hidden, self.result, self.pack = nn.Linear(4, 8), nn.Linear(8, 2), pack

    def forward(self, x):
        hidden = torch.relu(self.hidden(x))
        return self.pack(hidden, self.result(hidden))


class TestAutocast:
    @pytest.mark.parametrize(
        "pack",
        [
            lambda hidden, result: result,
            lambda hidden, result: (result, hidden),
            lambda hidden, result: {"logits": result, "all": [hidden]},
            lambda hidden, result: Frozen(result),
        ],
    )
    def test_float32_comes_out_and_gradients_go_in(self, script, pack):
        model, target = Layers(pack), script(bf16_autocast=True)
        output = target.call(model, torch.randn(3, 4))
        found = []
        map_tensors(output, found.append)
        assert {tensor.dtype for tensor in found} == {torch.float32}
        sum(tensor.sum() for tensor in found).backward()
        assert all(p.grad is not None and p.grad.dtype is torch.float32 for p in model.parameters())
        assert "bf16_autocast" in target.details

    def test_it_computes_in_bfloat16(self, script):
        model, target, x = Layers(), script(bf16_autocast=True), torch.randn(64, 4)
        difference = (target.call(model, x) - model(x)).abs().max().item()
        assert 0 < difference < 0.05

    def test_losses_that_refuse_half_precision(self, script):
        model, target = nn.Sequential(nn.Linear(4, 1)), script(bf16_autocast=True)
        probability = torch.sigmoid(target.call(model, torch.randn(3, 4)))
        assert nn.BCELoss()(probability, torch.ones(3, 1)).item() > 0

    def test_several_calls_before_the_backward_pass(self, script):
        model, target = Layers(), script(bf16_autocast=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(8):
            with torch.no_grad():
                target.call(model, torch.ones(1, 4))
            optimizer.zero_grad()
            loss = sum(target.call(model, torch.ones(2, 4)).square().sum() for _ in range(2))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0] / 2

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
    def test_models_of_another_precision_are_left_alone(self, script, dtype):
        model, target = Layers().to(dtype), script(bf16_autocast=True)
        assert target.call(model, torch.randn(3, 4, dtype=dtype)).dtype is dtype
        assert not target.details

    def test_a_script_that_autocasts_itself(self, script):
        target = script(bf16_autocast=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert target.call(Layers(), torch.randn(3, 4)).dtype is torch.bfloat16
        assert not target.details


class TestLossScaling:
    def train(self, script, step, **settings):
        torch.manual_seed(0)
        model, target = Layers(), script(**settings)
        optimizer = target.optimizer(torch.optim.SGD, model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(4):
            step(model, target, optimizer)
        return torch.cat([p.detach().flatten() for p in model.parameters()]), target

    @staticmethod
    def plain(model, target, optimizer):
        optimizer.zero_grad()
        target.backward(target.call(model, torch.ones(2, 4)).square().sum())
        optimizer.step()

    @staticmethod
    def clipped(model, target, optimizer):
        optimizer.zero_grad()
        target.backward(target.call(model, torch.ones(2, 4)).square().sum())
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        assert norm < 100  # a scaled one would be thousands of times that
        optimizer.step()

    @staticmethod
    def accumulated(model, target, optimizer):
        optimizer.zero_grad(set_to_none=False)
        for scale in (1.0, 2.0, 3.0):
            target.backward(target.call(model, torch.full((2, 4), scale)).square().sum() / 100)
        optimizer.step()

    @staticmethod
    def by_hand(model, target, optimizer):
        model.zero_grad()
        target.backward(target.call(model, torch.ones(2, 4)).square().sum())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad

    @pytest.mark.parametrize("step", ["plain", "clipped", "accumulated", "by_hand"])
    def test_training_is_the_same(self, script, step):
        expected, _ = self.train(script, getattr(self, step))
        actual, target = self.train(script, getattr(self, step), fp16_autocast=True)
        torch.testing.assert_close(actual, expected, rtol=0.02, atol=0.02)
        assert "fp16_autocast" in target.details and not target.refusals

    def test_small_gradients_survive(self, script):
        model, target = Layers(), script(fp16_autocast=True)
        target.backward(target.call(model, torch.ones(2, 4)).sum() * 1e-7)
        assert model.hidden.weight.grad.abs().max() > 1e-9

    def test_a_learning_rate_schedule_and_two_optimizers(self, script):
        target, models = script(fp16_autocast=True), [Layers(), Layers()]
        optimizers = [target.optimizer(torch.optim.Adam, m.parameters(), lr=0.1) for m in models]
        schedule = torch.optim.lr_scheduler.StepLR(optimizers[0], 1)
        for _ in range(2):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                target.backward(target.call(model, torch.ones(2, 4)).mean())
                assert model.result.bias.grad.tolist() == [0.5, 0.5]
                optimizer.step()
            schedule.step()
        assert optimizers[0].param_groups[0]["lr"] == pytest.approx(0.001)

    def test_an_overflow_leaves_the_step_out(self, script):
        model, target = Layers(), script(fp16_autocast=True)
        optimizer = target.optimizer(torch.optim.Adam, model.parameters(), lr=0.1)
        before = copy.deepcopy(model.state_dict())
        target.backward(target.call(model, torch.ones(2, 4)).sum() * 1e38)
        optimizer.step()
        assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
        optimizer.zero_grad()
        target.backward(target.call(model, torch.ones(2, 4)).mean())
        optimizer.step()
        assert not torch.equal(before["result.bias"], model.result.bias)
        assert torch.isfinite(model.result.bias).all()

    def test_the_scale_grows_after_steps_without_overflow(self, script, monkeypatch):
        monkeypatch.setattr(fp16_autocast, "GROWTH_INTERVAL", 2)
        target = script()
        autocast = type("Used", (), {"active": True, "used": True})()
        scaling = fp16_autocast.LossScaling(autocast, target.seen_by("test"))
        model = Layers()
        optimizer = target.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            target.backward(target.call(model, torch.ones(2, 4)).mean())
            optimizer.step()
        assert scaling.scale == 2 * fp16_autocast.INITIAL_SCALE

    def test_closures_are_refused_and_the_script_goes_on(self, script):
        model, target = Layers(), script(fp16_autocast=True)
        optimizer = target.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)

        def closure():
            optimizer.zero_grad()
            loss = target.call(model, torch.ones(2, 4)).sum()
            target.backward(loss)
            return loss

        optimizer.step(closure)
        assert "closure" in target.refusals["fp16_autocast"]
        assert model.result.bias.grad.tolist() == [2.0, 2.0]

    def test_without_autocast_nothing_is_scaled(self, script):
        target, weight = script(fp16_autocast=True), nn.Parameter(torch.ones(1))
        target.backward((weight * 3).sum())
        assert weight.grad.item() == 3
        assert not target.details
