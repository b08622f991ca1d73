"""Statements that put something new in the place of what an optimizer keeps of a parameter."""

from __future__ import annotations

import ast
import textwrap

import pytest

from gpuadvisor.collectors.script.child.shortening.branch_names import Names
from gpuadvisor.domain.rehearsal import Touch

BEFORE = textwrap.dedent("""
    adam = torch.optim.Adam(model.parameters())
    state = adam.state[p]
    kept, table = clone(), {}
    for p, each in optimizer.state.items():
        pass
""")


@pytest.mark.parametrize(
    ("statement", "is_new"),
    [
        ("adam.state[p]['step'] = 0", True),
        ("self.optimizer.state[p]['step'] = torch.tensor(0)", True),
        ("opt.state[p]['exp_avg'] = kept", True),
        ("state['step'] = torch.tensor(0)", True),
        ("state['step'], other = 0, 1", True),
        ("each['step'] = 0", True),
        ("state.update(step=0)", True),
        ("state['step'] = torch.tensor(0.0)", False),
        ("state['step'] = torch.zeros(())", False),
        ("state['step'] = torch.zeros((), dtype=torch.int64)", True),
        ("state['exp_avg'] = torch.zeros_like(p)", False),
        ("state['exp_avg'] = state['exp_avg'] * 0.5", False),
        ("state['exp_avg'].zero_()", False),
        ("adam.state[p] = {}", False),
        ("adam.state.clear()", False),
        ("group['lr'] = 0.1", False),
        ("table[p]['step'] = 0", False),
        ("model.state[p]['step'] = 0", False),
        ("table.update(step=0)", False),
    ],
)
def test_what_is_kept_of_a_parameter(statement, is_new):
    tree = ast.parse(BEFORE + statement)
    assert (Touch.STATE in Names(tree).touched(tree.body[-1:])) == is_new
