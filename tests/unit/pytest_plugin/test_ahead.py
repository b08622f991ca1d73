"""What the benchmarks of tests are given of a project's configuration of gates."""

from types import SimpleNamespace

import pytest

from gpuadvisor.errors import UsageError
from gpuadvisor.pytest_plugin.ahead import _configured

TABLE = """
[tool.gpuadvisor.gate]
link = ["data"]
setup-cmd = "make"
"""


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """Return what is linked and set up with these options, in a folder below the project's."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tests)

    def configured(table, links=(), setup=None):
        (tmp_path / "pyproject.toml").write_text(table)
        options = {"gpuadvisor_link": list(links), "gpuadvisor_setup_cmd": setup}
        return _configured(SimpleNamespace(rootpath=tests, getoption=options.get))

    return configured


def test_links_add_up_and_those_of_the_table_are_relative_to_its_file(configured):
    assert configured(TABLE) == (("../data",), "make")
    assert configured(TABLE, ["cache"], "ninja") == (("../data", "cache"), "ninja")


def test_without_a_table_options_are_all(configured):
    assert configured("", ["cache"]) == (("cache",), None)


def test_a_table_of_benchmarks_does_as_well_and_a_wrong_one_is_said(configured):
    more = TABLE + '[[tool.gpuadvisor.gate.benchmark]]\nname = "a"\nscript = "a.py"\nlink = ["b"]\n'
    assert configured(more) == (("../data",), "make")
    with pytest.raises(UsageError, match="link` has to be an array of texts"):
        configured(TABLE.replace('["data"]', '"data"'))
