"""How many batches a loader has ready: whether it keeps up, before its queue has run empty."""

from __future__ import annotations

from typing import Any

KEEPS_UP, RUN_DRY = 0.75, 0.25
"""Shares of the batches in advance that are ready when the loader keeps up with the steps, and when
it does not. Between them the queue is still filling or emptying."""


def ready_batches(iterator: Any) -> int | None:
    """Return the batches that wait to be taken, or None where that cannot be seen.

    Reads what torch's multi-process iterator keeps (torch 2.4 to 2.13): the workers' queue, the
    pinned queue behind it, and batches that came out of turn.
    """
    try:
        queues = {id(q): q for q in (iterator._data_queue, iterator._worker_result_queue)}
        early = sum(len(task) == 2 for task in iterator._task_info.values())
        return early + sum(int(queue.qsize()) for queue in queues.values())
    except (AttributeError, NotImplementedError):  # another iterator; macOS has no qsize
        return None


def is_settled(ready: int | None, stock: int) -> bool:
    """Say whether step times show the loader as it is, and not batches loaded before."""
    return ready is not None and not RUN_DRY * stock < ready < KEEPS_UP * stock


def has_shrunk(before: int | None, now: int | None, stock: int) -> bool:
    """Say whether the steps between lived on batches loaded before."""
    if before is None or now is None:
        return False
    return before - now > max(2.0, RUN_DRY * stock)
