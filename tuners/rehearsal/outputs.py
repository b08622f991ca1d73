"""How far what the models of two lives put out is apart, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from gpuadvisor.domain.rehearsal import Call, Life
from gpuadvisor.tuners.equivalence import relative_difference

COMPARABLE = 0.9
"""Part of the rows whose outputs must have numbers at the same places in both lives: of a text as
long as a model is wide it cannot be told which length is which."""

Row = tuple[Call, int]
"""A call, and the place of a row in it."""
Pairs = list[tuple[Row, Row]]


def outputs_apart(ours: Sequence[Call], theirs: Sequence[Call]) -> tuple[float, str] | None:
    """Compare the rows of outputs, however they are divided into calls.

    They are compared in order, and where batches have another size also in the order in which each
    place of the script calls the model, once a batch: of the two, what is nearer was meant.
    """
    apart = [_apart(pairs) for pairs in _orders(ours, theirs)]
    known = [each for each in apart if each is not None]
    if not known:
        return None
    value, rows = min(known)
    return value, f"largest relative difference in {rows:,} rows of outputs"


def probes_apart(ours: Life, theirs: Life) -> float | None:
    """Compare outputs in evaluation mode; of calls of other sizes the rows that both have.

    None without such outputs, or where they have another shape.
    """
    pairs = zip(ours.probes, theirs.probes, strict=False)
    apart = [outputs_apart([a], [b]) for a, b in pairs]
    known = [each[0] for each in apart if each is not None]
    return max(known) if apart and len(known) == len(apart) else None


def are_side_by_side(ours: Sequence[Call], theirs: Sequence[Call]) -> bool:
    """Say whether it is known which rows of the lives' outputs belong together."""
    return _structure(ours) == _structure(theirs) or _once_a_batch(ours, theirs) is not None


def _orders(ours: Sequence[Call], theirs: Sequence[Call]) -> Iterator[Pairs]:
    """Yield the ways in which rows of the one life may belong to rows of the other."""
    yield list(zip(_rows(ours), _rows(theirs), strict=False))
    if _structure(ours) != _structure(theirs):
        pairs = _once_a_batch(ours, theirs)
        if pairs is not None:
            yield pairs


def _structure(calls: Sequence[Call]) -> list[tuple[int, int]]:
    return [(call.root, call.rows_out) for call in calls]


def _rows(calls: Sequence[Call]) -> list[Row]:
    return [(call, n) for call in calls for n in range(max(call.rows_out, len(call.values)))]


def _once_a_batch(ours: Sequence[Call], theirs: Sequence[Call]) -> Pairs | None:
    """Return the rows by what calls the model: each root's first call in a batch, its second, ...

    None where the lives have not as many rows of each.
    """
    mine, others = _places(ours), _places(theirs)
    rows = {place: (_rows(calls), _rows(others.get(place, []))) for place, calls in mine.items()}
    if mine.keys() != others.keys() or any(len(a) != len(b) for a, b in rows.values()):
        return None
    return [pair for a, b in rows.values() for pair in zip(a, b, strict=True)]


def _places(calls: Sequence[Call]) -> dict[tuple[int, int], list[Call]]:
    """Return the calls by their root and by how many calls of it came before in the same batch."""
    before: Counter[tuple[int, int]] = Counter()
    places: dict[tuple[int, int], list[Call]] = {}
    for call in calls:
        places.setdefault((call.root, before[call.root, call.batch]), []).append(call)
        before[call.root, call.batch] += 1
    return places


def _apart(pairs: Pairs) -> tuple[float, int] | None:
    """Return the largest relative difference of a call of ours, and how many rows were compared.

    None where too few could be.
    """
    apart, compared, kept = [], 0, 0
    for _, together in groupby(pairs, lambda pair: id(pair[0][0])):
        mine: list[float] = []
        others: list[float] = []
        for (ours, row), (theirs, their_row) in together:
            if row >= len(ours.values) or their_row >= len(theirs.values):
                continue  # of a large batch, not all rows are kept
            kept += 1
            both = _numbers(ours, row, theirs, their_row)
            if both is not None:
                compared += 1
                mine += both[0]
                others += both[1]
        if mine:
            apart.append(relative_difference(mine, others))
    if not apart or compared < COMPARABLE * kept:
        return None
    return max(apart), compared


def _numbers(
    ours: Call, row: int, theirs: Call, their_row: int
) -> tuple[Sequence[float], Sequence[float]] | None:
    """Return numbers that stand at the same places of two rows; None where none do.

    A row that is longer by as much as the input is compared as far as the other one goes: what
    follows is what the model makes of padding, as both were given the same sample.
    """
    if _sizes(ours) == _sizes(theirs):
        return ours.values[row], theirs.values[their_row]
    if ours.shapes != theirs.shapes:
        return None
    mine, others = ours.starts[row], theirs.starts[their_row]
    common = min(len(mine), len(others))
    return mine[:common], others[:common]


def _sizes(call: Call) -> list[list[int]]:
    """Return the shapes of a row of each output."""
    lengths = iter(call.lengths)
    return [[next(lengths) if n is None else n for n in shape] for shape in call.shapes]
