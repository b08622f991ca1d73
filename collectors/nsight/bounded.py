"""Texts and warnings that are kept of a file, bounded: a hostile one may hold gigabytes of them."""

from __future__ import annotations

from gpuadvisor.domain.profile import MAX_WARNINGS, NO_TEXT, Texts

LONGEST_TEXT = 16_384
"""Characters kept of a text. Demangled names of CUTLASS kernels reach some 10,000."""
ALL_TEXTS = 256 * 2**20
"""Characters kept of all texts together; the largest real exports seen hold 1 % of it."""


class Warnings:
    """Collects the sentences of `Header.warnings`."""

    def __init__(self) -> None:
        self._sentences: dict[str, None] = {}

    def add(self, sentence: str) -> None:
        """Take a sentence; repeated ones and those beyond `MAX_WARNINGS` are left out."""
        if len(self._sentences) < MAX_WARNINGS:
            self._sentences[sentence] = None

    def all(self) -> tuple[str, ...]:
        """Return the sentences, in the order in which they came."""
        return tuple(self._sentences)


class Names(Texts):
    """Numbers texts like `Texts` until there are too many; then new ones are left out."""

    def __init__(self, warnings: Warnings, room: int = ALL_TEXTS) -> None:
        super().__init__()
        self._warnings = warnings
        self._room = room

    def number(self, text: str) -> int:
        """Return a text's number, or `NO_TEXT` where there is no room for it."""
        text = text[:LONGEST_TEXT]
        known = self._numbers.get(text)
        if known is not None:
            return known
        if self._room < len(text):
            self._warnings.add("the file has so many different names that some were left out")
            return NO_TEXT
        self._room -= len(text)
        return super().number(text)
