"""What the daemon tells whoever started it: sd_notify(3), which is a datagram and no library."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping

SOCKET_VARIABLE = "NOTIFY_SOCKET"


class Notifier:
    """Sends states to systemd, or to `gpuadvisor daemon start`; silent where nobody listens."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        address = environ.get(SOCKET_VARIABLE, "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._has_watchdog = for_us and "WATCHDOG_USEC" in environ

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nMAINPID={os.getpid()}\nSTATUS={_line(status)}")

    def status(self, status: str) -> None:
        self._send(f"STATUS={_line(status)}")

    def reloading(self) -> None:
        """Tell that the configuration is read; `ready` tells that it is in force."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Keep the watchdog quiet."""
        if self._has_watchdog:
            self._send("WATCHDOG=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),  # it has gone, and we go on
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel,
        ):
            channel.setblocking(False)
            channel.sendto(state.encode(), self._address)


def _line(text: str) -> str:
    return " ".join(text.split())
