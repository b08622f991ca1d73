"""The program behind `gpuadvisor watch --host a,b`: it begins with the page of all machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.screen import Screen

from gpuadvisor.tui.watch.app import HOSTS, Watch
from gpuadvisor.tui.watch.pages.hosts import Hosts


class WatchHosts(Watch):
    """All pages of several machines."""

    DEFAULT_MODE = HOSTS
    MODES: ClassVar[dict[str, str | Callable[[], Screen[None]]]] = {HOSTS: Hosts}
