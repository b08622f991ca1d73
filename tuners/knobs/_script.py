"""What knobs ask of a script: where it computes, what it calls, and how it reads its batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import LoaderFacts, ScriptFacts, Settings
from gpuadvisor.domain.measurement import Measurement

NO_ROOT = "the script calls no torch module with parameters"
NO_LOADER = "the script reads no batches from a torch DataLoader"

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


def main_loader(facts: ScriptFacts) -> LoaderFacts | None:
    """Return the loader that feeds the most batches."""
    return facts.loaders[0] if facts.loaders else None


def workers_missing(settings: Settings, facts: ScriptFacts) -> str | None:
    """Return why a setting of the workers cannot do anything, or None if there are workers."""
    loader = main_loader(facts)
    own = loader.num_workers if loader is not None else 0
    if settings.get(WORKERS, own):
        return None
    return "it needs DataLoader workers, and the script has none: set dataloader_workers too"


def not_waiting(best: Measurement) -> str | None:
    """Return that the script does not wait for its loaders, where that is so."""
    if best.data_wait_share >= WAITING_SHARE:
        return None
    return f"the script waits for its loaders in {best.data_wait_share:.1%} of the time only"


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
