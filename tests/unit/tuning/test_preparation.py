"""Where a study puts its plan."""

import pytest

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.errors import UsageError
from gpuadvisor.tuning.preparation import plan_path


@pytest.mark.parametrize(
    ("script", "is_module", "expected"),
    [
        ("train.py", False, "train.plan.toml"),
        ("src/train.py", False, "train.plan.toml"),
        ("train.v2.py", False, "train.v2.plan.toml"),
        ("package.train", True, "train.plan.toml"),
        ("package", True, "package.plan.toml"),
    ],
)
def test_the_plan_is_named_after_the_script(tmp_path, monkeypatch, script, is_module, expected):
    monkeypatch.chdir(tmp_path)
    assert str(plan_path(Command("python", script, (), is_module))) == expected


def test_where_it_cannot_be_written_nothing_begins(tmp_path):
    command = Command("python", "train.py")
    for path in (tmp_path, tmp_path / "no" / "x.toml"):
        with pytest.raises(UsageError, match="choose another place with --plan"):
            plan_path(command, path)
