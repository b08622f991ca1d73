"""Questions to samplers of a script's own how far they are."""

from __future__ import annotations

import ast
import textwrap
from types import SimpleNamespace

import pytest

from gpuadvisor.collectors.script.child.shortening.branch_names import Names
from gpuadvisor.collectors.script.child.shortening.loop_rewriting import rewrite
from gpuadvisor.domain.rehearsal import Touch

SAMPLER = """
    class Resumable(torch.utils.data.Sampler):
        def __init__(self, size):
            self.size, self.epoch, self.place = size, 0, 0

        def __len__(self):
            return self.size

        def __iter__(self):
            for i in torch.randperm(self.size).tolist():
                self.place += 1
                yield i
            self.epoch, self.place = self.epoch + 1, 0

        def state_dict(self):
            return {"place": self.place}

        def shape(self):
            return self.size

    order, other = Resumable(len(data)), {}
    loader = DataLoader(data, sampler=order)
"""


def parsed(line: str) -> ast.Module:
    return ast.parse(textwrap.dedent(SAMPLER) + line)


@pytest.mark.parametrize(
    ("question", "is_asked"),
    [
        ("order.place", True),
        ("order.state_dict()", True),
        ("loader.sampler.place", True),
        ("self.sampler.state_dict()", True),
        ("order.epoch", False),  # which changes between passes
        ("order.shape()", False),
        ("len(order)", False),
        ("other.place", False),
        ("model.state_dict()", False),
    ],
)
def test_how_far_a_sampler_is(question, is_asked):
    tree = parsed(question)
    names = Names(tree)
    asking = [node for node in ast.walk(tree.body[-1]) if names.samplers.asks(node)]
    assert bool(asking) == is_asked
    assert (Touch.ORDER in names.touched(tree.body[-1:])) == is_asked


def test_a_sampler_that_is_known_by_what_it_is_given_to():
    text = textwrap.dedent(SAMPLER).replace("torch.utils.data.Sampler", "object")
    tree = ast.parse(f"{text}order.place")
    assert Names(tree).samplers.asks(tree.body[-1].value)
    tree = ast.parse(f"{text.replace('sampler=order', 'order')}order.place")
    assert not Names(tree).samplers.asks(tree.body[-1].value)


@pytest.mark.parametrize(
    ("line", "marked"),
    [("save(order.place)", ["order.place"]), ("print(order.place)", []), ("order.place = 0", [])],
)
def test_a_mark_where_it_is_asked(line, marked):
    text = textwrap.dedent(SAMPLER) + f"for batch in loader:\n    {line}\n"
    failing = SimpleNamespace(send=lambda _, detail: pytest.fail(detail))
    done = rewrite(text, "/home/user/train.py", 0, channel=failing)
    assert [mark.what for mark in done.marks if Touch.AHEAD in mark.touches] == marked
