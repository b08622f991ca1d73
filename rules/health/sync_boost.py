"""The clock is held down by the slowest GPU of a sync boost group."""

from __future__ import annotations

from functools import partial

from gpuadvisor.domain.clock_reasons import SYNC_BOOST
from gpuadvisor.rules.clocks import DriverThrottling

EVENTS = (partial(DriverThrottling, SYNC_BOOST),)
