"""Asks a knob about the script in which it is, as gpuadvisor orders, and sends what it answers.

It runs in the process of the script. Orders come as lines of JSON through a named pipe; while one
is waited for, the script stands still. What checks and times kernels of a kernel file does so here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from gpuadvisor.collectors.kernels.child.arguments import difference, rounding
from gpuadvisor.collectors.kernels.child.timing import GpuClock, HostClock
from gpuadvisor.collectors.script.child.channel import leave
from gpuadvisor.domain.inquiry import Clock
from gpuadvisor.domain.target import Target


class OrderedInquiry:
    """Orders from a pipe, answers through the channel (`gpuadvisor.domain.inquiry.Inquiry`)."""

    difference = staticmethod(difference)
    rounding = staticmethod(rounding)

    def __init__(self, target: Target, orders: str) -> None:
        self.target = target
        self._path = Path(orders)
        self._orders: IO[str] | None = None
        self._is_over = False

    def order(self) -> Mapping[str, Any] | None:
        if self._is_over:
            return None
        if self._orders is None:
            self._orders = self._path.open(encoding="utf-8")  # until the script's end
        line = self._orders.readline()
        if not line:  # gpuadvisor is gone
            leave(1)
        order: dict[str, Any] = json.loads(line)
        self._is_over = bool(order.get("end"))
        return None if self._is_over else order

    def answer(self, **fields: Any) -> None:
        self.target.tell(json.dumps(fields))

    def give_up(self, **fields: Any) -> None:
        self.answer(**fields)
        leave(1)

    def clock(self) -> Clock:
        import torch

        return GpuClock() if torch.cuda.is_initialized() else HostClock()


class Inquirer:
    """Applier that the specification of a run names: it has a knob answer questions."""

    def apply(self, value: str, target: Target) -> None:
        """Apply the options, a JSON object of `orders`, the path of a named pipe, and `knob`, which
        is `module:attribute` of what has a method `answer_orders`.
        """
        options = json.loads(value)
        module, _, attribute = options["knob"].partition(":")
        getattr(import_module(module), attribute).answer_orders(
            OrderedInquiry(target, options["orders"])
        )


INQUIRER = Inquirer()
