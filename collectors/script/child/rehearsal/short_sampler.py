"""Fewer batches a pass, of the same samples in each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

MOST_INDICES = 1 << 24
"""Indices of a pass up to which all are drawn: ImageNet-21k has 14 million pictures, and 16 million
take half a gigabyte. A sampler with more, or that does not tell, gives them for as long as the
script asks, as one that draws ten billion with replacement to have no end."""


class ShortSampler:
    """Stands for a DataLoader's index sampler and ends early.

    Where torch's own sampler draws single indices, those of an evenly spread subset are kept: the
    same ones in every pass, so that what the data set keeps of a sample is found again, and with
    as incomplete a last batch as the whole pass has. Other samplers, and one without an end, just
    end early. All else of the sampler shows through.
    """

    def __init__(self, torch: Any, sampler: Any, batches: int, own_batch: int | None) -> None:
        self._sampler = sampler
        self._batches = batches
        self._own_batch = own_batch
        """Samples of a batch as the script built the loader, before a knob changed it: both lives
        read the same samples."""
        utils = torch.utils.data
        self._by_samples = type(sampler) is utils.BatchSampler and isinstance(
            sampler.sampler, (utils.SequentialSampler, utils.RandomSampler,
                              utils.SubsetRandomSampler, utils.WeightedRandomSampler,
                              utils.DistributedSampler),
        ) and (whole_batches(sampler.sampler) or math.inf) <= MOST_INDICES  # fmt: skip
        self._kept: frozenset[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "_sampler":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._sampler, name)

    def __iter__(self) -> Iterator[Any]:
        if not self._by_samples:
            yield from islice(iter(self._sampler), self._most_batches())
            return
        # All at once, which draws the random numbers that the whole pass would draw.
        indices = list(self._sampler.sampler)
        wanted = self._wanted(len(indices))
        if wanted < len(indices):
            indices = self._chosen(indices, wanted)
        size = self._sampler.batch_size
        full = len(indices) - len(indices) % size if self._sampler.drop_last else len(indices)
        for start in range(0, full, size):
            yield indices[start : start + size]

    def __len__(self) -> int:
        whole = len(self._sampler)
        if not self._by_samples:
            return min(whole, self._most_batches())
        count = self._wanted(len(self._sampler.sampler))
        size = self._sampler.batch_size
        return int(count // size if self._sampler.drop_last else math.ceil(count / size))

    def _chosen(self, indices: list[Any], wanted: int) -> list[Any]:
        if self._kept is None:
            known = sorted(set(indices))
            step = len(known) / wanted
            self._kept = frozenset(known[int(n * step)] for n in range(wanted))
        kept = [index for index in indices if index in self._kept]
        return kept if 2 * len(kept) >= wanted else indices[:wanted]  # drawn with replacement

    def _wanted(self, available: int) -> int:
        """Return how many samples of those available a pass reads."""
        own = self._own_batch or self._sampler.batch_size
        if available <= self._batches * own:
            return available
        return (self._batches - 1) * own + (available % own or own)

    def _most_batches(self) -> int:
        size = getattr(self._sampler, "batch_size", None)
        if not (self._own_batch and isinstance(size, int) and size > 0):
            return self._batches
        return max(1, math.ceil(self._batches * self._own_batch / size))


def whole_batches(sampler: Any) -> int | None:
    """Return how many batches, or indices, a sampler gives in a whole pass; None where it does not
    tell."""
    try:
        return len(getattr(sampler, "_sampler", sampler))
    except Exception:  # endless, or of the script's own making
        return None


def short_batches(sampler: Any) -> int | None:
    """Return how many batches a sampler gives in a shortened pass, where it tells."""
    try:
        return len(sampler)
    except Exception:
        return None
