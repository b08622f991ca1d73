"""Looks ahead: what a whole pass over the data needs that a shortened one does not."""

from __future__ import annotations

from statistics import mean

from gpuadvisor.domain.rehearsal import Life
from gpuadvisor.domain.study import Aspect
from gpuadvisor.tuners.rehearsal.lives import Findings


def look_ahead(found: Findings) -> None:
    """Compare the files and the memory that whole passes will need with what there is."""
    _open_files(found)
    _copied_memory(found)


def _open_files(found: Findings) -> None:
    """A whole pass may open more files than the process may have."""
    limit = found.lives.plan.most_open_files
    if limit is None:
        return
    for ours, theirs in zip(found.lives.first.epochs, found.lives.plan.epochs, strict=False):
        count = len(theirs.batches)
        whole = theirs.whole_batches or count
        if count > 1 and theirs.open_files - ours.open_files >= count - 1:
            needed = theirs.open_files * whole // (count - 1)
            if needed > limit:
                each = f"each batch leaves {theirs.open_files / (count - 1):.1f} files open"
                more = f"a whole pass {needed:,}, more than the {limit:,} that are allowed"
                found.data_problem(Aspect.END, f"{each}, and {more}")


def _copied_memory(found: Findings) -> None:
    """Workers may copy more of the script's memory than there is.

    A data set that is a large list of Python objects is shared with forked workers at first, and
    page by page copied by each of them as it is read (github.com/pytorch/pytorch/issues/13246).
    """
    plan = found.lives.plan
    if plan.available_bytes is None:
        return
    needed, each = _copied_by(plan)
    if needed > plan.available_bytes >= _copied_by(found.lives.first)[0]:
        found.data_problem(
            Aspect.END,
            f"the workers copy {each / 2**20:,.1f} MiB of the script's memory a batch, as looking"
            f" at an object writes to it, and {needed / 2**30:,.1f} GiB in a whole pass:"
            f" {plan.available_bytes / 2**30:,.1f} GiB are free",
        )


def _copied_by(life: Life) -> tuple[float, float]:
    """Return how many bytes workers will have copied after a whole pass at most, and in a batch.

    That is what they copied a batch after the first, but no more than all that each shares.
    """
    most = (0.0, 0.0)
    for loader, number in {(each.loader, each.epoch) for each in life.workers}:
        workers = [w for w in life.workers if (w.loader, w.epoch) == (loader, number)]
        copied = [w.copied_bytes for w in workers if w.copied_bytes is not None]
        batches = max((e.whole_batches or 0 for e in life.epochs if e.loader == loader), default=0)
        if copied:
            shared = sum(w.shared_bytes or 0 for w in workers)
            most = max(most, (min(mean(copied) * batches, shared), mean(copied)))
    return most
