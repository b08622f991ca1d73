"""The texts of a profile, bounded: a hostile file may hold gigabytes of different ones."""

from __future__ import annotations

from gpuadvisor.collectors.nsight.remarks import Remarks
from gpuadvisor.domain.profile import NO_TEXT, Texts

LONGEST_TEXT = 16_384
"""Characters. Demangled names of CUTLASS kernels reach some 10,000."""
ALL_TEXTS = 256 * 2**20
"""Characters in total; the largest real exports seen hold 1 % of it."""


class Names(Texts):
    """Numbers texts like `Texts` until there are too many; then new ones are left out."""

    def __init__(self, remarks: Remarks, room: int = ALL_TEXTS) -> None:
        super().__init__()
        self._remarks = remarks
        self._room = room

    def number(self, text: str) -> int:
        """Return a text's number, or `NO_TEXT` where there is no room for it."""
        text = text[:LONGEST_TEXT]
        known = self._numbers.get(text)
        if known is not None:
            return known
        if self._room < len(text):
            self._remarks.add("the file has so many different names that some were left out")
            return NO_TEXT
        self._room -= len(text)
        return super().number(text)
