"""Calls that list or wait for all processes that a script started."""

from __future__ import annotations

import ast

import pytest

from gpuadvisor.collectors.script.child.shortening.branch_names import Names
from gpuadvisor.collectors.script.child.shortening.branch_processes import asks_children
from gpuadvisor.domain.rehearsal import Touch


@pytest.mark.parametrize(
    ("call", "asks"),
    [
        ("multiprocessing.active_children()", True),
        ("active_children()", True),
        ("os.wait()", True),
        ("os.waitpid(-1, os.WNOHANG)", True),
        ("os.waitpid(writer.pid, 0)", False),
        ("psutil.Process().children()", True),
        ("parent.children(recursive=True)", True),
        ("model.children()", False),
        ("writer.wait()", False),
        ("writer.join()", False),
    ],
)
def test_children(call, asks):
    assert asks_children(ast.parse(call, mode="eval").body) == asks


def test_a_function_that_waits():
    text = "def tidy():\n    for each in active_children(): each.join()\ntidy()"
    tree = ast.parse(text)
    assert Names(tree).touched(tree.body[-1:]) == {Touch.CHILDREN}
