"""Which rows of two lives' outputs belong together, and how far they are apart."""

from __future__ import annotations

import pytest

from gpuadvisor.domain.rehearsal import Call
from gpuadvisor.tuners.rehearsal.outputs import are_side_by_side, outputs_apart


def called(rows, root=0, batch=0, **changes):
    """A call that puts out one number a row."""
    values = tuple((float(row),) for row in rows)
    return Call(0, len(values), len(values), False, values, root=root, batch=batch, **changes)


def in_turn(size, roots=(0, 0), put_out=(lambda row: row, lambda row: 100 + row), count=8):
    """Calls of a script that calls the model twice for each batch of this size."""
    return [
        called([made(row) for row in range(at, at + size)], root, batch=at // size)
        for at in range(0, count, size)
        for root, made in zip(roots, put_out, strict=True)
    ]


@pytest.mark.parametrize("roots", [(0, 0), (0, 1)])
def test_two_calls_a_batch(roots):
    found = outputs_apart(in_turn(2, roots), in_turn(4, roots))
    assert found == (0.0, "largest relative difference in 16 rows of outputs")
    other = in_turn(4, roots, (lambda row: row + (row == 7), lambda row: 100 + row))
    assert outputs_apart(in_turn(2, roots), other)[0] > 0.05


def test_what_the_one_call_gives_is_not_taken_for_what_the_other_gives():
    swapped = in_turn(4, put_out=(lambda row: 100 + row, lambda row: row))
    assert are_side_by_side(in_turn(2), swapped)
    assert outputs_apart(in_turn(2), swapped)[0] > 0.5


def test_towers_that_change_places_with_each_batch():
    ours, theirs = ([
        replace_root(call, (call.root + call.batch) % 2) for call in in_turn(size, (0, 1))
    ] for size in (2, 4))  # fmt: skip
    assert outputs_apart(ours, theirs)[0] > 0.5


def replace_root(call, root):
    return called([row[0] for row in call.values], root, call.batch)


def test_batches_that_are_divided_into_calls_of_one_size():
    ours = [called(range(at, at + 2), batch=at // 2) for at in range(0, 8, 2)]
    theirs = [called(range(at, at + 2), batch=at // 4) for at in range(0, 8, 2)]
    assert outputs_apart(ours, theirs)[0] == 0.0


def test_an_order_that_is_another_one():
    ours = [called([0, 1], batch=0), called([2, 3], batch=1)]
    assert outputs_apart(ours, [called([2, 3, 0, 1])])[0] > 0.5


def test_calls_of_which_nobody_knows_what_belongs_together():
    """Each call of the one is two of the other, in turn."""
    ours = in_turn(2)
    theirs = [called([row], call.root, n // 4)
              for n, call in enumerate(in_turn(2)) for row in (call.values[0][0], 50)]  # fmt: skip
    assert not are_side_by_side(ours, theirs)


def test_of_large_batches_not_all_rows_are_kept():
    ours = [called(range(4), batch=0), called(range(4, 8), batch=1)]
    theirs = [Call(0, 8, 8, False, tuple((float(n),) for n in range(6)))]
    assert outputs_apart(ours, theirs) == (0.0, "largest relative difference in 6 rows of outputs")


class TestLengths:
    """A text's outputs in a batch of longer ones are as many as those have tokens."""

    @staticmethod
    def read(length, starts, rows=2, shapes=((None, 7),)):
        return called([length] * rows, shapes=shapes, lengths=(length,), starts=(starts,) * rows)

    def test_what_both_have_is_compared(self):
        short = self.read(3, (1.0, 2.0, 3.0))
        assert outputs_apart([short], [self.read(5, (1.0, 2.0, 3.0, 9.0, 9.0))])[0] == 0.0
        assert outputs_apart([short], [self.read(5, (1.0, 2.0, 4.0, 9.0, 9.0))])[0] > 0.2

    def test_of_equal_lengths_all_of_it(self):
        same = self.read(3, (1.0, 2.0, 3.0))
        other = called([4, 4], shapes=same.shapes, lengths=same.lengths, starts=same.starts)
        assert outputs_apart([same], [other])[0] > 0.2

    def test_a_shape_that_is_not_the_inputs(self):
        ours = called([1, 2], shapes=((3,),))
        assert outputs_apart([ours], [called([1, 2], shapes=((5,),))]) is None
        assert outputs_apart([ours], [called([1, 2], shapes=((None,),), lengths=(3,))])[0] == 0.0

    def test_few_texts_as_long_as_the_model_is_wide(self):
        usual = self.read(3, (1.0,), rows=20), self.read(5, (1.0, 2.0), rows=20)
        ours = called([7], shapes=((None, None),), lengths=(7, 7), starts=((1.0,),))
        theirs = called([9], shapes=((None, 7),), lengths=(9,), starts=((3.0,),))
        found = outputs_apart([usual[0], ours], [usual[1], theirs])
        assert found == (0.0, "largest relative difference in 20 rows of outputs")
        assert outputs_apart([usual[0], *[ours] * 3], [usual[1], *[theirs] * 3]) is None
