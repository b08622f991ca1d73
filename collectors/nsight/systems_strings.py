"""The texts that an export keeps apart from its events (`StringIds`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuadvisor.collectors.nsight.cells import Whole
from gpuadvisor.collectors.nsight.names import ALL_TEXTS
from gpuadvisor.collectors.nsight.remarks import Remarks
from gpuadvisor.collectors.nsight.sqlite_export import DamagedError, Export, quoted
from gpuadvisor.domain.profile import NO_TEXT

TABLE = "StringIds"
_USED = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName"),
    ("CUPTI_ACTIVITY_KIND_KERNEL", "shortName"),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId"),
    ("NVTX_EVENTS", "textId"),
)
"""Most of the texts are symbols of call stacks, which nobody asks for here."""


def strings(export: Export, remarks: Remarks) -> Mapping[int, str]:
    """Return the texts of kernels, calls and ranges by their number."""
    users = [
        f"SELECT {quoted(column)} FROM {quoted(table)}"
        for table, column in _USED
        if column in export.columns(table)
    ]
    if not users or not {"id", "value"} <= export.columns(TABLE):
        return {}
    found: dict[int, str] = {}
    try:
        _load(export, " UNION ".join(users), found)
    except DamagedError as error:
        remarks.add(f"some names are missing, because {TABLE} cannot be read further: {error}")
    return found


def _load(export: Export, used: str, found: dict[int, str]) -> None:
    room = ALL_TEXTS
    query = (
        f"SELECT id, substr(value, 1, 16384) FROM {TABLE} "
        f"WHERE id IN ({used}) AND typeof(value) = 'text'"
    )
    for number, text in export.text_rows(query):
        room -= len(text)
        if room < 0:
            raise DamagedError("the names are too long")
        found[number] = text


def text_numbers(
    ids: Whole, texts: Mapping[int, str], number: Callable[[str], int]
) -> npt.NDArray[np.int32]:
    """Return a number of the profile for each number of the export; `NO_TEXT` where unknown."""
    distinct, places = np.unique(ids, return_inverse=True)
    numbers = [number(texts[one]) if one in texts else NO_TEXT for one in distinct.tolist()]
    return np.array(numbers, np.int32)[places.reshape(-1)]


def cell_numbers(cells: Sequence[Any], number: Callable[[str], int]) -> npt.NDArray[np.int32]:
    """Return numbers for cells that hold the text itself; `NO_TEXT` for what is no text."""
    found = [number(cell) if isinstance(cell, str) else NO_TEXT for cell in cells]
    return np.array(found, np.int32)
