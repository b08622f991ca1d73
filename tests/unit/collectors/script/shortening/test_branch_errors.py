"""Handlers that wait for an error which is another one from a worker, or from a compiled model."""

from __future__ import annotations

import ast
import textwrap

import pytest

from gpuadvisor.collectors.script.child.shortening.branch_names import Names
from gpuadvisor.domain.rehearsal import Touch

READING = """
    loader = DataLoader(data)
    batches, bad = iter(loader), []
    while True:
        try:
            BODY
        except ERROR:
            HANDLED
"""


def touched(text: str) -> set[Touch]:
    """Return what all handlers of a program touch by being handlers."""
    tree = ast.parse(textwrap.dedent(text))
    names = Names(tree)
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
    return set().union(*map(names.errors.touches, handlers))


@pytest.mark.parametrize(
    ("body", "error", "handled", "is_lost"),
    [
        ("x = next(batches)", "UnicodeDecodeError", "continue", True),
        ("x = next(batches)", "(KeyError, json.JSONDecodeError)", "continue", True),
        ("x = next(batches)", "ValueError", "continue", True),  # of which these are kinds
        ("x = next(batches)", "KeyError", "continue", False),
        ("x = next(batches)", "KeyError as error", "bad.append(error.args[0])", True),
        ("x = next(batches)", "OSError as error", "bad.append(str(error))", True),
        ("x = next(batches)", "OSError as error", "print(f'left out: {error}')", False),
        ("x = next(batches)", "StopIteration as error", "bad.append(error)", False),
        ("x = [step(each) for each in loader]", "UnicodeError", "continue", True),
        ("x = [step(each) for each in bad]", "UnicodeError", "continue", False),
        ("x = int(line)", "ValueError", "continue", False),
    ],
)
def test_an_error_that_samples_are_read_with(body, error, handled, is_lost):
    text = READING.replace("BODY", body).replace("ERROR", error).replace("HANDLED", handled)
    assert touched(text) == ({Touch.ERRORS} if is_lost else set())


def test_a_function_that_reads():
    reads = """
        def read(): return next(batches)
        try:
            read()
        except UnicodeDecodeError:
            pass
    """
    assert touched(reads) == {Touch.ERRORS}
    assert touched(reads.replace("next(batches)", "open('a').read()")) == set()


def test_an_error_that_does_not_leave_the_reading():
    text = """
        class Reviews(Dataset):
            def __getitem__(self, i):
                try:
                    return next(self.rows)
                except UnicodeDecodeError:
                    return ""
        loader = DataLoader(Reviews())
    """
    assert touched(text) == set()


MODEL = """
    class Model(nn.Module):
        def forward(self, x):
            assert TEST
            return x
    try:
        loss = model(x)
    except ERROR:
        pass
"""


@pytest.mark.parametrize(
    ("test", "error", "is_other"),
    [
        ("torch.isfinite(x).all()", "AssertionError", True),
        ("(x >= 0).all(), 'negative'", "(AssertionError, KeyError)", True),
        ("x.shape[1] == 64", "AssertionError", False),
        ("x.size(1) == 64 and len(x)", "AssertionError", False),
        ("torch.isfinite(x).all()", "ValueError", False),
        ("torch.isfinite(x).all()", "(AssertionError, RuntimeError)", False),
        ("torch.isfinite(x).all()", "AssertionError: pass\n    except Exception", False),
    ],
)
def test_an_assertion_of_a_model(test, error, is_other):
    found = touched(MODEL.replace("TEST", test).replace("ERROR", error))
    assert found == ({Touch.ASSERTIONS} if is_other else set())


def test_an_assertion_of_the_script_s_own():
    text = MODEL.replace("TEST", "x.all()").replace("ERROR", "AssertionError")
    assert touched(text.replace("def forward", "def check")) == set()
