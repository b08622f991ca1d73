"""What waits for a module hears of it once, when it is imported and not when it is looked for."""

import importlib.util
import sys

import pytest

from gpuadvisor.collectors.script.child.imports import after_import


@pytest.fixture
def awaited(tmp_path, monkeypatch):
    """A module that nothing has imported yet."""
    (tmp_path / "awaited_module.py").write_text("VALUE = 1\n")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.syspath_prepend(tmp_path)
    yield "awaited_module"
    sys.modules.pop("awaited_module", None)


@pytest.mark.parametrize("looks", [0, 1, 3])
def test_a_module_that_is_looked_for_before_it_is_imported_is_still_heard_of(awaited, looks):
    # `datasets` asks whether torch is installed before anything imports it.
    heard = []
    after_import(awaited, lambda: heard.append(sys.modules[awaited].VALUE))
    for _ in range(looks):
        assert importlib.util.find_spec(awaited).origin.endswith("awaited_module.py")
    assert heard == []
    importlib.import_module(awaited)
    assert heard == [1]


def test_a_module_that_is_loaded_again_is_not_heard_of_again(awaited):
    heard = []
    after_import(awaited, lambda: heard.append(awaited))
    module = importlib.import_module(awaited)
    assert module.__loader__ is module.__spec__.loader
    assert type(module.__loader__).__module__.startswith("_frozen_importlib")
    importlib.reload(module)
    assert heard == [awaited]


def test_what_is_not_there_is_not_found_and_not_heard_of():
    name = "no_module_of_this_name"
    after_import(name, lambda: pytest.fail("it was not imported"))
    assert importlib.util.find_spec(name) is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)


def test_all_who_wait_for_a_module_hear_of_it(awaited):
    heard = []
    after_import(awaited, lambda: heard.append("first"))
    after_import(awaited, lambda: heard.append("second"))
    importlib.import_module(awaited)
    after_import(awaited, lambda: heard.append("late"))
    assert heard == ["first", "second", "late"]
