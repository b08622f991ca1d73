"""The texts of a trace, numbered, within bounds that a hostile file cannot leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Raw

from gpuadvisor.collectors.kineto.events import normal_json
from gpuadvisor.domain.profile import NO_TEXT

Key = TypeVar("Key", str, bytes)

MAX_BYTES = 256 << 20
"""Bytes of all texts together. Traces of half a GB have about 10 MB of different ones."""
OVERHEAD_BYTES = 128
"""What Python takes for a text and its place in a dictionary, about."""
MAX_TEXT = 1 << 16
"""Characters of one text; the longest names of kernels have some thousands."""


class BoundedTexts:
    """Texts by number, like `domain.profile.Texts`; once they are full, new ones are left out."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": NO_TEXT}
        self._lists: dict[bytes, int] = {b"": NO_TEXT}
        self._stacks: dict[str, int] = {"": NO_TEXT}
        self._bytes = 0
        self.left_out = 0
        """Rows whose text had no room."""

    def numbers(self, texts: Sequence[str]) -> list[int]:
        """Return the numbers of texts."""
        return _looked_up(texts, self._numbers, self._new)

    def numbers_of_json(self, values: Iterable[Raw]) -> list[int]:
        """Return the numbers of JSON values as texts, spaced as Kineto does."""
        return self._derived(list(map(bytes, values)), self._lists, normal_json)

    def numbers_of_stacks(self, stacks: Sequence[str]) -> list[int]:
        """Return the numbers of stacks, a line a frame."""
        return self._derived(stacks, self._stacks, lambda stack: stack.replace(";", "\n"))

    def all(self) -> tuple[str, ...]:
        """Return the texts by number."""
        return tuple(self._numbers)

    def _new(self, text: str) -> int:
        if len(text) > MAX_TEXT:
            return self.numbers([text[: MAX_TEXT - 1] + "…"])[0]
        if not self._has_room(len(text)):
            self.left_out += 1
            return NO_TEXT
        return self._numbers.setdefault(text, len(self._numbers))

    def _derived(
        self, keys: Sequence[Key], known: dict[Key, int], text_of: Callable[[Key], str]
    ) -> list[int]:
        """Return the numbers of the texts that are made of keys, each made once."""

        def new(key: Key) -> int:
            number = self.numbers([text_of(key)])[0]
            if self._has_room(len(key)):
                known[key] = number
            return number

        return _looked_up(keys, known, new)

    def _has_room(self, characters: int) -> bool:
        """Take room for a text; False where there is none left."""
        needed = characters + OVERHEAD_BYTES
        if self._bytes + needed > MAX_BYTES:
            return False
        self._bytes += needed
        return True


def _looked_up(
    keys: Sequence[Key], known: Mapping[Key, int], new: Callable[[Key], int]
) -> list[int]:
    """Return each key's number, asking for new ones only where there are any."""
    found = list(map(known.get, keys))
    if None not in found:
        return found  # type: ignore[return-value]  # the line above proves it
    return [
        (known[key] if key in known else new(key)) if number is None else number
        for key, number in zip(keys, found, strict=True)
    ]
