"""Which GPUs a block is measured on."""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.collectors import visible_devices
from gpuadvisor.domain.telemetry import Gpu
from gpuadvisor.errors import UsageError

Wanted = Sequence[int | str] | int | str | None
"""One GPU, some, or (None) all."""


def choose(known: Sequence[Gpu], wanted: Wanted, visible: str | None) -> tuple[Gpu, ...]:
    """Return those wanted of all that are known; `visible` is `CUDA_VISIBLE_DEVICES`.

    Numbers count what is visible; UUIDs, or how they begin, name any GPU. UsageError where one
    that is wanted is not there. Without wishes it is what is visible, which may be nothing.
    """
    if wanted is None:
        return _usable(known, visible)
    if isinstance(wanted, (int, str)):
        wanted = (wanted,)
    return tuple(_named(known, visible, each) for each in wanted)


def _usable(known: Sequence[Gpu], visible: str | None) -> tuple[Gpu, ...]:
    if visible is None:
        return tuple(known)
    whole = {gpu.index: gpu for gpu in known if not gpu.is_instance}
    uuids = [whole[i].uuid if i in whole else None for i in range(max(whole, default=-1) + 1)]
    found = (
        [gpu for gpu in known if gpu.uuid == item] if isinstance(item, str) else [whole.get(item)]
        for item in visible_devices.select(uuids, visible)
    )
    return tuple(gpu for gpus in found for gpu in gpus if gpu)


def _named(known: Sequence[Gpu], visible: str | None, name: int | str) -> Gpu:
    if isinstance(name, str):
        matching = [gpu for gpu in known if gpu.uuid.startswith(name)]
        if len(matching) != 1:
            raise UsageError(
                f"{name!r} names {len(matching)} GPUs: give the UUID as nvidia-smi -L shows it"
            )
        return matching[0]
    usable = _usable(known, visible)
    if visible is None:
        usable = tuple(gpu for gpu in usable if not gpu.is_instance)
    if not 0 <= name < len(usable):
        raise UsageError(
            f"there is no GPU {name}: this process can use {len(usable)}, numbered from 0"
        )
    return usable[name]
