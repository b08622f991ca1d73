"""What of a file could not be used, told once each and never endlessly."""

from __future__ import annotations

from gpuadvisor.domain.profile import MAX_WARNINGS


class Remarks:
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
