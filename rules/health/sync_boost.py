"""The clock is held down by the slowest GPU of a sync boost group."""

from __future__ import annotations

from gpuadvisor.domain.clock_reasons import SYNC_BOOST
from gpuadvisor.rules.clocks import Throttling


class SyncBoost(Throttling):
    """The event that another GPU of the group holds the clock down."""

    reason = SYNC_BOOST


EVENTS = (SyncBoost,)
