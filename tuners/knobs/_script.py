"""What knobs ask of a script: where it computes, what it calls, and how it reads its batches."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import ScriptFacts, Settings, Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Aspect
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.base import Knob, Obstacle

WAITING_SHARE = 0.02
"""Share of the time spent waiting for batches below which faster loading gains nothing that a
trial could show. Taking a ready batch from the queue costs some 0.2 ms."""

WORKERS = "dataloader_workers"
"""Name of the knob that the worker's own knobs depend on."""


def not_on_gpu(device: Device, facts: ScriptFacts) -> str | None:
    """Return why a knob of the GPU can do nothing, or None if the script computes on one."""
    if not device.is_gpu:
        return "there is no GPU here"
    return None if facts.device == "cuda" else "the script computes on the CPU"


def not_linux(reason: str) -> Obstacle:
    """Return an obstacle: `reason`, wherever this is not Linux."""
    return lambda device, facts: None if sys.platform.startswith("linux") else reason


def no_root(device: Device, facts: ScriptFacts) -> str | None:
    """Return why a knob of the model can do nothing, or None if the script calls a module."""
    return None if facts.roots else "the script calls no torch module with parameters"


def no_convolution(device: Device, facts: ScriptFacts) -> str | None:
    """Return why a knob of convolutions can do nothing, or None if the model has any."""
    return None if facts.has_convolution else "the script's model has no convolution layer"


def no_loader(device: Device, facts: ScriptFacts) -> str | None:
    """Return why a knob of the loaders can do nothing, or None if the script reads from one."""
    if facts.loaders:
        return None
    reason = "the script reads no batches from a torch DataLoader"
    return f"{reason} that could be seen" if facts.unseen else reason


class LoaderKnob(Knob):
    """A knob of the script's DataLoaders, which changes what each is built with."""

    reaches: ClassVar[frozenset[Aspect]] = frozenset(Aspect)
    obstacles: ClassVar[tuple[Obstacle, ...]] = (no_loader,)
    concerns_loading: ClassVar[bool] = True
    needs_workers: ClassVar[bool] = True
    """Whether it does nothing without workers, the script's own or those of another knob."""
    cures_waiting: ClassVar[bool] = True
    """Whether less waiting for batches is all that it can bring."""

    def missing(self, settings: Settings, facts: ScriptFacts) -> str | None:
        own = facts.loaders[0].num_workers if facts.loaders else 0
        if not self.needs_workers or settings.get(WORKERS, own):
            return None
        return "it needs DataLoader workers, and the script has none: set dataloader_workers too"

    def pointless(self, best: Measurement) -> str | None:
        return not_waiting(best) if self.cures_waiting else None

    def apply(self, value: Value, target: Target) -> None:
        target.on_loader(partial(self.adjust, value, target))

    def adjust(self, value: Value, target: Target, arguments: dict[str, Any]) -> None:
        """Change the arguments with which a DataLoader is about to be built."""
        raise NotImplementedError


def not_waiting(best: Measurement) -> str | None:
    """Return that the script does not wait for its loaders, where that is so."""
    share = best.starved_share
    if share >= WAITING_SHARE:
        return None
    who = "the script" if best.data_wait_share < WAITING_SHARE else "the GPU"
    return f"{who} waits for its loaders in {share:.1%} of the time only"


def is_iterable(arguments: Mapping[str, Any]) -> bool:
    """Say whether a DataLoader about to be built streams an `IterableDataset`."""
    from torch.utils.data import IterableDataset

    return isinstance(arguments["dataset"], IterableDataset)


def is_on_gpu(arguments: Mapping[str, Any]) -> bool:
    """Say whether the data set visibly holds GPU tensors.

    Those can be neither pinned nor read in a forked worker. Only `TensorDataset` (and subsets of
    one) shows its tensors; any other data set answers by failing, which ends that trial alone.
    """
    dataset = arguments["dataset"]
    while hasattr(dataset, "dataset"):  # Subset
        dataset = dataset.dataset
    tensors = getattr(dataset, "tensors", ())
    return any(getattr(tensor, "is_cuda", False) for tensor in tensors)
