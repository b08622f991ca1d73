"""The scripts of a rehearsal's cases: each is in the table, and says what was expected and seen."""

import ast

from tests.rehearsal_cases.cases import CASES, FOLDER, HEALTHY, TRAPS

SCRIPTS = {
    path.relative_to(FOLDER).as_posix()
    for kind in ("traps", "healthy")
    for path in (FOLDER / kind).rglob("*.py")
}


def path_of(case):
    name = case.target.replace(".", "/") + ".py" if case.is_module else case.target
    return case.folder / name


def test_every_script_is_in_the_table_and_every_case_has_a_script():
    listed = {path_of(case).relative_to(FOLDER).as_posix() for case in CASES}
    helpers = {"healthy/shop/__init__.py", "healthy/shop/data.py"}
    assert listed == SCRIPTS - helpers


def test_names_are_unique():
    assert len({case.name for case in CASES}) == len(CASES)


def test_there_are_as_many_as_the_promise_needs():
    assert len(TRAPS) >= 27
    assert sum(case.gains for case in HEALTHY) >= 25


def lacking(case):
    """Return what the docstring of a case's script does not say."""
    said = ast.get_docstring(ast.parse(path_of(case).read_text())) or ""
    words = ["expected: ", "observed: ", *case.dangerous, *(["danger: "] if case.is_trap else [])]
    return [case.name, *(word for word in words if word not in said)]


def test_every_script_says_what_was_expected_and_observed():
    assert [lacking(case) for case in CASES] == [[case.name] for case in CASES]


def test_what_is_dangerous_is_among_the_settings_of_each_trap():
    assert all(case.dangerous and set(case.dangerous) <= set(case.settings) for case in TRAPS)
