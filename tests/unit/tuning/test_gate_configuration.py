"""Benchmarks of a project: what their tables may say, and the sentence for what they may not."""

import pytest

from gpuadvisor.domain.gate import Benchmark
from gpuadvisor.errors import UsageError
from gpuadvisor.tuning.gate.configuration import find_configuration

ONE = '[[tool.gpuadvisor.gate.benchmark]]\nname = "a"\nscript = "a.py"\n'
TABLE = "tool.gpuadvisor.gate"
FIRST = "tool.gpuadvisor.gate.benchmark[0]"


@pytest.fixture
def found(tmp_path):
    def found(text, name="pyproject.toml", folder=tmp_path):
        (tmp_path / ".git").mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
        return find_configuration(folder)

    return found


def test_what_the_table_says_holds_for_benchmarks_that_say_nothing_else(found):
    text = (
        f'[{TABLE}]\nlimit = 5\nturns = false\nlink = ["data"]\n{ONE}limit = 2.5\nargs = ["-x"]\n'
    )
    (only,) = found(text).benchmarks
    assert only == Benchmark(
        "a", "a.py", False, ("-x",), {"limit": 2.5, "turns": False, "link": ["data"]}
    )


def test_it_is_found_above_a_folder_up_to_the_repository(found, tmp_path):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    assert found("[tool.other]", folder=inside) is None
    assert found(ONE, folder=inside).path == tmp_path / "pyproject.toml"
    (inside / ".git").mkdir()
    assert find_configuration(inside) is None


def test_a_file_of_its_own_comes_first(found):
    assert found(ONE).benchmarks[0].name == "a"
    own = '[[gate.benchmark]]\nname = "b"\nmodule = "b.train"\n'
    (only,) = found(own, "gpuadvisor.toml").benchmarks
    assert (only.name, only.script, only.is_module) == ("b", "b.train", True)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[tool.gpuadvisor", "is not a configuration: it is not valid TOML "),
        ("[tool.gpuadvisor]\ngate = 1", f"`{TABLE}` has to be a table, [{TABLE}]"),
        (f"[{TABLE}]", f"there is no benchmark: add one, headed [[{TABLE}.benchmark]]"),
        (f"[{TABLE}.benchmark]\nname = 'a'", f"`{TABLE}.benchmark` has to be tables, each headed"),
        (f"[{TABLE}]\ntolerance = '1'\n{ONE}", "tolerance` has to be a number above 0, not '1'"),
        (f"{ONE}limit = -1", f"`{FIRST}.limit` has to be a number above 0, not -1"),
        (f"{ONE}measure = true", f"`{FIRST}.measure` has to be a number above 0, not True"),
        (
            f"{ONE}link = 'data'",
            f"`{FIRST}.link` has to be an array of texts in quotes, not 'data'",
        ),
        (f"{ONE}turns = 0", f"`{FIRST}.turns` has to be true or false, not 0"),
        (f"{ONE}setup_cmd = 'x'", f"`{FIRST}.setup_cmd` is not known: did you mean `setup-cmd`? "),
        (f"{ONE}colour = 1", "known are name, script, module, args, tolerance, limit, measure,"),
        (f"[{TABLE}]\nscript = 'a'\n{ONE}", f"`{TABLE}.script` is not known:"),
        (f"{ONE}module = 'a'", f"`{FIRST}` needs either `script` or `module`"),
        (ONE.replace('name = "a"', ""), f"`{FIRST}.name` is missing"),
        (ONE.replace('"a"', '"a.py"'), f"`{FIRST}.name` 'a.py' would be taken for a script"),
        (ONE + ONE, "two benchmarks are called 'a': give each a name"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_the_key(found, tmp_path, text, sentence):
    with pytest.raises(UsageError) as raised:
        found(text)
    assert sentence in str(raised.value)
    assert str(tmp_path / "pyproject.toml") in str(raised.value)
    assert "\n" not in str(raised.value)
