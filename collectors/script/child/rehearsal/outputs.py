"""A few numbers of each row of what a module put out, to compare it with another life's."""

from __future__ import annotations

import math
from typing import Any

from gpuadvisor.collectors.script.child.trace import tensors_in

COLUMNS = 8
"""Numbers kept of a row of outputs, evenly spread."""
MOST_ROWS = 1024
"""Rows kept of a call's outputs: more than a batch usually has."""
OUTPUT_TENSORS = 4
START_PLACES = (0, 1, *(n for power in range(1, 12) for n in (1 << power, 3 << (power - 1))))
"""Places along a length that varies, dense at its start: 12 of a text of 50 tokens, and never more
than 24."""


def outputs_of(torch: Any, result: Any, given: Any) -> dict[str, Any]:
    """Return the fields of a `Call` that say what a module made of what it was given."""
    tensors = [t for t in tensors_in(torch, result) if t.numel() and not t.is_sparse]
    if not tensors:
        return {"rows_out": 0, "values": [], "shapes": [], "lengths": [], "starts": []}
    count = int(tensors[0].shape[0]) if tensors[0].dim() else 1
    kept = [_rows(tensor.detach(), count) for tensor in tensors[:OUTPUT_TENSORS]]
    kept = [rows for rows in kept if rows.shape[0] == kept[0].shape[0]]
    inputs = [tensor for tensor in tensors_in(torch, given) if not tensor.is_nested]
    known = {size for tensor in inputs for size in tensor.shape[1:]}
    shapes = [[None if size in known else size for size in rows.shape[1:]] for rows in kept]
    lengths = [size for rows in kept for size in rows.shape[1:] if size in known]
    values = [_picked(torch, rows, _spread(torch, rows)) for rows in kept]
    starts = []
    if lengths:
        common = sum(place < min(lengths) for place in START_PLACES)
        places = [_starting(rows, known, common) for rows in kept]
        picked = [_picked(torch, *each) for each in zip(kept, places, strict=True)]
        # By places first, so that of two lengths the one's are the beginning of the other's.
        starts = torch.cat([each.unflatten(1, (common, -1)) for each in picked], 2).flatten(1)
        starts = starts.tolist()
    return {
        "rows_out": count,
        "values": torch.cat(values, 1).tolist(),
        "shapes": shapes,
        "lengths": lengths,
        "starts": starts,
    }


def _rows(tensor: Any, count: int) -> Any:
    """Return a tensor with one entry a row, or a single one of all where it has no rows."""
    by_row = tensor.dim() > 0 and tensor.shape[0] == count
    return tensor[:MOST_ROWS] if by_row else tensor.unsqueeze(0)


def _spread(torch: Any, rows: Any) -> list[int]:
    """Return evenly spread places in a row."""
    size = math.prod(rows.shape[1:])
    places = torch.linspace(0, size - 1, min(COLUMNS, size), dtype=torch.float64)
    return places.long().tolist()  # type: ignore[no-any-return]


def _starting(rows: Any, known: set[int], common: int) -> list[int]:
    """Return places in a row that depend on none of the known lengths."""
    places = []
    for number in range(common):
        place = 0
        for size in rows.shape[1:]:
            spread = number % COLUMNS * (size - 1) // (COLUMNS - 1)
            place = place * size + (START_PLACES[number] if size in known else spread)
        places.append(place)
    return places


def _picked(torch: Any, rows: Any, places: list[int]) -> Any:
    """Return the numbers at these places of each row, in the CPU's memory."""
    flat = rows.reshape(rows.shape[0], -1)
    some = flat.index_select(1, torch.tensor(places, device=flat.device))
    some = torch.view_as_real(some).flatten(1) if some.is_complex() else some
    return some.to("cpu", torch.float64)
