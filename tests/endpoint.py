"""The endpoint of a daemon without the daemon: frames made by hand, told over real HTTP."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from gpuadvisor.daemon.configuration import Prometheus
from gpuadvisor.daemon.configured_values import Address
from gpuadvisor.daemon.endpoint.exporter import Exporter
from gpuadvisor.daemon.endpoint.hosts import Host
from gpuadvisor.daemon.figures import Figures
from gpuadvisor.domain.telemetry import Frame
from tests.telemetry import START_S


class Endpoint:
    """One machine, on a port of this one."""

    def __init__(self, name: str = "node7", folder: Path | None = None, **chosen: object) -> None:
        """`folder` is the store with its past; `chosen` are keys of `[prometheus]`."""
        self.name = name
        self._folder = folder
        self._chosen = Prometheus(address=Address("127.0.0.1:0"), **chosen)
        self._open()

    def _open(self) -> None:
        self.figures = Figures()
        self.exporter = Exporter(self.figures, self._chosen, self._folder)
        self.port = int(self.exporter.url.rpartition(":")[2].partition("/")[0])

    def host(self, **changes: object) -> Host:
        return replace(Host(self.name, "127.0.0.1", self.port), **changes)

    def take(self, frame: Frame) -> Frame:
        """Have the daemon read a frame, of now where it is one of `START_S`, and return it."""
        read = replace(frame, time_s=time.time() + frame.time_s - START_S)
        self.exporter.take(read, self.figures.observe(read))
        return read

    def close(self) -> None:
        self.exporter.close()

    def restart(self) -> Host:
        """End it, and begin another one; return where that is."""
        self.close()
        self._open()
        return self.host()
