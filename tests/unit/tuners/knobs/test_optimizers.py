"""Fused and foreach optimizers."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - torch may be missing

TORCH = tuple(int(number) for number in torch.__version__.split(".")[:2])


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


class TestOptimizers:
    @pytest.mark.parametrize("value", ["fused", "foreach"])
    @pytest.mark.parametrize("cls", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
    def test_same_result(self, script, value, cls):
        models = [net(), net()]
        models[1].load_state_dict(models[0].state_dict())
        plain, target = script(), script(fused_optimizer=value)
        for model, script in zip(models, [plain, target], strict=True):
            optimizer = script.optimizer(cls, model.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()
        assert optimizer.param_groups[0][value] is True
        assert "fused_optimizer" in target.details
        for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
            torch.testing.assert_close(a, b)

    @pytest.mark.parametrize(
        ("value", "cls", "own"),
        [
            ("fused", torch.optim.Adam, {"foreach": True}),
            ("foreach", torch.optim.Adam, {"fused": True}),
            ("fused", torch.optim.Adam, {"differentiable": True}),
            ("foreach", torch.optim.Adam, {"lr": torch.tensor(0.1)}),
            ("fused", torch.optim.RMSprop, {}),
            ("foreach", torch.optim.LBFGS, {}),
        ],
    )
    def test_what_the_script_chose_stands(self, script, value, cls, own):
        target = script(fused_optimizer=value)
        optimizer = target.optimizer(cls, net().parameters(), **own)
        assert not optimizer.param_groups[0].get(value)
        assert not target.details

    def test_parameters_that_cannot_be_fused(self, script):
        target = script(fused_optimizer="fused")
        weight = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
        optimizer = target.optimizer(torch.optim.Adam, [weight])
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        assert not target.details

    def test_groups_given_as_generators(self, script):
        target = script(fused_optimizer="fused")
        model = net()
        groups = [
            {"params": model[0].parameters(), "lr": 0.5},
            {"params": model[2].weight},
        ]
        optimizer = target.optimizer(torch.optim.SGD, groups, lr=0.1)
        assert [len(group["params"]) for group in optimizer.param_groups] == [2, 1]
        assert optimizer.param_groups[0]["fused"] and optimizer.param_groups[0]["lr"] == 0.5

    @pytest.mark.skipif(TORCH < (2, 6), reason="torch takes no names before 2.6")
    def test_named_parameters(self, script):
        target = script(fused_optimizer="fused")
        optimizer = target.optimizer(torch.optim.SGD, net().named_parameters(), lr=0.1)
        assert optimizer.param_groups[0]["fused"]


def test_threads_are_set_where_no_module_is_called_and_stand(script):
    before = torch.get_num_threads()
    target = script(cpu_threads=before + 1)
    torch.set_num_threads(before + 2)
    assert torch.get_num_threads() == before + 2, "it is not there yet"
    target.optimizer(torch.optim.SGD, net().parameters(), lr=0.1)
    torch.set_num_threads(before + 2)
    assert torch.get_num_threads() == before + 1
    assert "cpu_threads" in target.details
