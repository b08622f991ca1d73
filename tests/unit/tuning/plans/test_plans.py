"""A plan survives its file, and whatever is in a file, only a UsageError comes out."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.knobs import Contribution, Level
from gpuadvisor.domain.study import Equivalence, Objective, Plan, Speedup, Verdict
from gpuadvisor.errors import UsageError
from gpuadvisor.tuning.plans.file import read_plan, write_plan

KNOBS = ("bf16_autocast", "num_workers", "compile")
PLAN = Plan(
    script="train.py",
    args=("--epochs", "3"),
    settings={"bf16_autocast": True, "num_workers": 8, "compile": "default", "arg:batch": 64},
    speedup=Speedup(1.42, 1.39, 1.45, 8),
    level=Level.BALANCED,
    objective=Objective.THROUGHPUT,
    contributions=(
        Contribution("bf16_autocast", True, 1.2, 1.1, 1.3),
        Contribution("num_workers", 8, 1.05),
    ),
    equivalence=Equivalence("equivalent", "mean relative difference of 10 losses", 0.002, 0.01),
    environment={"device": "NVIDIA H100 80GB HBM3", "torch": "2.7.1", "git_dirty": False},
    created="2026-10-02T14:12:07+00:00",
    study="train-3",
    verdict=Verdict.FASTER,
)

# Lone surrogates are not text: no file holds them.
text = st.text(st.characters(exclude_categories=["Cs"]))
word = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
"""What a command line can hold."""
exact = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
value = exact | text
number = st.none() | st.floats(allow_nan=False, allow_infinity=False)
ratio = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
plans = st.builds(
    Plan,
    script=text,
    args=st.lists(text).map(tuple),
    is_module=st.booleans(),
    settings=st.dictionaries(word, exact | word),
    speedup=st.none() | st.builds(Speedup, ratio, ratio, ratio, st.integers(min_value=0)),
    level=st.sampled_from(Level),
    objective=st.sampled_from(Objective),
    contributions=st.lists(st.builds(Contribution, text, value, ratio, number, number)).map(tuple),
    equivalence=st.none()
    | st.builds(
        Equivalence,
        st.sampled_from(["equivalent", "wrong", "not_checked"]),
        text,
        number,
        number,
        text,
    ),
    environment=st.dictionaries(text, value),
    created=text,
    study=text,
    verdict=st.sampled_from([None, Verdict.FASTER, Verdict.FASTER_UNVERIFIED]),
)
one_file = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
    max_examples=50,
)


@one_file
@given(plan=plans)
def test_what_is_written_is_read(plan, tmp_path):
    path = tmp_path / "plan.toml"
    write_plan(plan, path)
    assert read_plan(path) == plan


def test_the_file_is_readable(tmp_path):
    path = tmp_path / "train.plan.toml"
    write_plan(PLAN, path)
    content = path.read_text("utf-8")
    assert "gpuadvisor run --plan train.plan.toml train.py -- --epochs 3" in content
    assert content.startswith("# ")
    document = tomllib.loads(content)
    tables = ["plan", "knobs", "speedup", "equivalence", "environment", "contributions"]
    assert list(document) == tables
    assert document["knobs"]["arg:batch"] == 64


def test_a_gain_that_is_not_verified_says_so(tmp_path):
    path = tmp_path / "plan.toml"
    write_plan(PLAN, path)
    assert "verdict" in path.read_text("utf-8")
    assert "Not verified" not in path.read_text("utf-8")
    write_plan(replace(PLAN, verdict=Verdict.FASTER_UNVERIFIED), path)
    assert "# Not verified: the gain was measured, but" in path.read_text("utf-8")
    assert tomllib.loads(path.read_text("utf-8"))["plan"]["verdict"] == "faster_unverified"


def test_a_plan_is_replaced_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "plan.toml"
    write_plan(PLAN, path)
    write_plan(replace(PLAN, script="other.py"), path)
    assert read_plan(path).script == "other.py"
    assert list(tmp_path.iterdir()) == [path]


def test_a_line_break_in_a_name_does_not_end_the_comment(tmp_path):
    plan = replace(PLAN, script="a\n[knobs]\rx = 1", args=("\x1b[31m",))
    write_plan(plan, tmp_path / "plan.toml")
    assert read_plan(tmp_path / "plan.toml") == plan


def test_bytes_that_are_no_text_do_not_lose_the_plan(tmp_path):
    write_plan(replace(PLAN, script="caf\udce9.py"), tmp_path / "plan.toml")
    assert read_plan(tmp_path / "plan.toml").script == "caf?.py"


def test_figures_that_are_not_finite_are_left_out(tmp_path):
    worth = (Contribution("a", 1, float("nan")), Contribution("b", 1, 1.1, float("inf"), 1.2))
    write_plan(replace(PLAN, contributions=worth), tmp_path / "plan.toml")
    assert read_plan(tmp_path / "plan.toml").contributions == (
        Contribution("b", 1, 1.1, None, 1.2),
    )


@pytest.mark.parametrize("path", ["no/such/folder/plan.toml", ".", "\0"])
def test_a_plan_that_cannot_be_written(path, tmp_path):
    with pytest.raises(UsageError, match="cannot write the plan"):
        write_plan(PLAN, tmp_path / path if path != "." else tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_known_knobs_and_arguments_are_accepted(tmp_path):
    write_plan(PLAN, tmp_path / "plan.toml")
    assert read_plan(tmp_path / "plan.toml", KNOBS) == PLAN


def edited(**tables):
    """The document of a small plan with its tables changed; None removes one."""
    document = {
        "plan": {
            "format": 1,
            "script": "train.py",
            "level": "balanced",
            "objective": "throughput",
        },
        "knobs": {"num_workers": 8},
        "speedup": {"ratio": 1.4, "ci99_low": 1.3, "ci99_high": 1.5, "pairs": 8},
    }
    for name, table in tables.items():
        merge = isinstance(table, dict) and name in document
        document[name] = {**document[name], **table} if merge else table
    return {
        name: {key: each for key, each in table.items() if each is not None}
        if isinstance(table, dict)
        else table
        for name, table in document.items()
        if table is not None
    }


WRONG = [
    ({"plan": None}, r"is not a plan: it has no \[plan\]"),
    ({"plan": {"format": None}}, r"`plan.format` is missing; add it"),
    ({"plan": {"format": 3}}, r"`plan.format` is 3, .* up to format 2; update gpuadvisor"),
    ({"plan": {"format": 3, "new": 1}}, r"update gpuadvisor"),
    ({"plan": {"verdict": "no_gain"}}, r"`plan.verdict` must be one of faster, faster_unverified"),
    ({"plan": {"format": 0}}, r"`plan.format` must be 1"),
    ({"plan": {"format": True}}, r"`plan.format` must be a whole number"),
    ({"plan": {"script": 3}}, r"`plan.script` must be text in quotes, not 3"),
    ({"plan": {"args": "--epochs"}}, r"`plan.args` must be an array of texts"),
    ({"plan": {"args": [1]}}, r"`plan.args` must be an array of texts"),
    ({"plan": {"level": "mild"}}, r"must be one of conservative, balanced, aggressive, not 'mild'"),
    ({"plan": {"objective": "joy"}}, r"must be one of throughput, latency, .*, not 'joy'"),
    ({"plan": {"autor": "me"}}, r"`plan.autor` is not a key of a plan; remove it"),
    ({"nobs": {}}, r"`nobs` is not a key of a plan"),
    ({"knobs": None}, r"`knobs` is missing"),
    ({"knobs": 3}, r"`knobs` must be a table, \[knobs\]"),
    ({"knobs": {"num_wrokers": 8}}, r"`knobs.num_wrokers` .* did you mean `num_workers`\?"),
    ({"knobs": {"zzz": 8}}, r"`knobs.zzz` is not a knob .*; remove it, or update"),
    ({"knobs": {"arg:": 8}}, r"`knobs.arg:` is not a knob"),
    ({"knobs": {"compile": [1]}}, r"`knobs.compile` must be true, false, a finite number or text"),
    ({"knobs": {"compile": float("nan")}}, r"`knobs.compile` must be"),
    ({"knobs": {"compile": 1 << 5000}}, r"must be a number of at most 4096 bits, not 14"),
    ({"knobs": {"compile": "x" * 20_000}}, r"text of at most 16384 characters, not 'x{50,60}\.\."),
    ({"speedup": {"ratio": "1.4"}}, r"`speedup.ratio` must be a finite number, not '1.4'"),
    ({"speedup": {"ratio": True}}, r"`speedup.ratio` must be a finite number"),
    ({"speedup": {"ratio": -1}}, r"`speedup.ratio` must be a number above 0"),
    ({"speedup": {"ratio": 10**400}}, r"`speedup.ratio` must be a finite number"),
    ({"speedup": {"pairs": 1.5}}, r"`speedup.pairs` must be a whole number of 0 or more"),
    ({"speedup": {"ci99_low": None}}, r"`speedup.ci99_low` is missing"),
    ({"contributions": {}}, r"`contributions` must be tables, each headed \[\[contributions\]\]"),
    ({"contributions": [{"knob": "a"}]}, r"`contributions\[0\].value` is missing"),
    ({"equivalence": {"status": "fine"}}, r"`equivalence.status` must be one of .*, not 'fine'"),
    ({"environment": {"device": {}}}, r"`environment.device` must be"),
]


@pytest.mark.parametrize(("changes", "sentence"), WRONG)
def test_what_is_wrong_with_a_plan(changes, sentence, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(tomli_w.dumps(edited(**changes)), "utf-8")
    with pytest.raises(UsageError, match=sentence) as caught:
        read_plan(path, KNOBS)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


FILES = [
    (b"plan = ", "not valid TOML"),
    (b"\xff\xfe", "not valid TOML"),
    (b"a = " + b"[" * 100_000, "not valid TOML"),
    (b"a = " + b"1" * 5_000, "not valid TOML"),
    (b"#" * (2 << 20), "larger than 1 MiB"),
    (b"", r"has no \[plan\]"),
]


@pytest.mark.parametrize(("content", "sentence"), FILES, ids=[str(n) for n in range(len(FILES))])
def test_what_is_no_plan_at_all(content, sentence, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=sentence):
        read_plan(path)


@pytest.mark.parametrize("path", [Path("missing.toml"), Path(), Path("a\0b")])
def test_what_cannot_be_read(path, tmp_path):
    with pytest.raises(UsageError, match="cannot read a plan"):
        read_plan(tmp_path / path)


def read_or_refuse(path):
    """Read the plan; nothing but a UsageError of one line may come out."""
    try:
        read_plan(path, KNOBS)
    except UsageError as error:
        assert "\n" not in str(error)


@one_file
@given(content=st.binary())
def test_random_bytes(content, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_bytes(content)
    read_or_refuse(path)


leaf = st.booleans() | st.integers() | st.floats() | text | st.datetimes() | st.dates()
tree = st.recursive(
    leaf, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=12
)
KEYS = ["plan", "knobs", "speedup", "contributions", "equivalence", "environment", "format"]
KEYS += ["script", "args", "level", "objective", "ratio", "pairs", "knob", "value", "status"]


@one_file
@given(tables=st.dictionaries(st.sampled_from(KEYS), tree | st.lists(st.dictionaries(text, leaf))))
def test_random_structures(tables, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(tomli_w.dumps(edited(**tables)), "utf-8")
    read_or_refuse(path)


@one_file
@given(table=st.sampled_from(["plan", "speedup", "knobs"]), key=st.sampled_from(KEYS), value=tree)
def test_random_values(table, key, value, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(tomli_w.dumps(edited(**{table: {key: value}})), "utf-8")
    read_or_refuse(path)


def test_every_truncation_of_a_plan(tmp_path):
    path = tmp_path / "plan.toml"
    write_plan(PLAN, path)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        read_or_refuse(path)


@pytest.mark.parametrize("line", ['"arg:x" = "\\u0000"', '"arg:\\u0000" = 1'])
def test_no_command_line_holds_a_nul(tmp_path, line):
    path = tmp_path / "plan.toml"
    write_plan(replace(PLAN, settings={"tf32": True}), path)
    path.write_text(path.read_text().replace("tf32 = true", line))
    with pytest.raises(UsageError, match="NUL"):
        read_plan(path)


def test_text_of_several_lines_is_written_as_such(tmp_path):
    value = "train.scale@1(n: 8) -> BLOCK: 64\ntrain.total@2(n: 8) -> BLOCK: 32, num_warps: 8"
    path = tmp_path / "it.toml"
    plan = replace(PLAN, settings={"triton_kernels": value})
    write_plan(plan, path)
    assert f'triton_kernels = """\n{value}"""' in path.read_text()
    assert read_plan(path).settings == plan.settings
