"""A server of which no client can make the daemon wait: few at once, each for a few seconds in all.

The Prometheus endpoint and the socket for processes are such servers.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import socketserver
import threading
import time
from collections import deque
from typing import Any, ClassVar

LOG = logging.getLogger(__name__)
REQUEST_S = 5.0
"""Seconds for a whole request, from the connection to the last byte of its answer. One takes some
20 ms; Prometheus gives up after 10 s (scrape_timeout), so its next try finds room whoever holds on.
"""
LOOK_S = 0.5
"""Seconds between two looks for clients that are late, while there are clients."""
LINGER_S = 1.0
"""Seconds in which a client that is turned away can read why: a socket that is closed with unread
bytes in it is reset, and its answer with it (RFC 9293, 3.10.4)."""
LINGERING = 64
"""Clients that linger at most; of more, the one that came first is cut."""


class BoundedServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves some clients at once, each on its thread and in REQUEST_S; others are turned away.

    TCPServer stands for every server of streams, one on a Unix socket as well.
    """

    clients: ClassVar[int]
    """Clients that are served at once."""
    busy_answer: ClassVar[bytes]
    """The answer to others."""
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    """Connections that the kernel keeps until they are accepted; beyond, clients wait a second."""

    def __init__(self, address: Any, handler: type[socketserver.BaseRequestHandler]) -> None:
        """Listen there; OSError where that cannot be. `begin` serves those who come."""
        self._room = threading.BoundedSemaphore(self.clients)
        self._served: dict[socket.socket, float] = {}
        """The monotonic time at which each client must be done."""
        self._lingering: deque[tuple[float, socket.socket]] = deque()
        """Clients that were turned away, and the monotonic time at which they are closed."""
        super().__init__(address, handler)
        self._is_ended, self._end = socket.socketpair()

    def begin(self, name: str) -> None:
        """Serve clients on a thread of this name, which sleeps while there are none."""
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Close the server; answers on their way are cut."""
        self._end.close()
        self._thread.join()
        self._is_ended.close()
        self.server_close()
        while self._lingering:
            self._lingering.popleft()[1].close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._is_ended, selectors.EVENT_READ)
            selector.register(self.socket, selectors.EVENT_READ)
            while True:
                waits = bool(self._served or self._lingering)
                ready = [key.fileobj for key, _ in selector.select(LOOK_S if waits else None)]
                if self._is_ended in ready:
                    return
                if ready:
                    self._accept()
                self._cut_late()

    def _accept(self) -> None:
        try:
            request, address = self.get_request()
        except OSError:  # the client has gone, or there are no more descriptors
            time.sleep(LOOK_S)
            return
        try:
            self.process_request(request, address)
        except Exception:
            self.handle_error(request, address)
            self.shutdown_request(request)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self._turn_away(request)
            return
        self._served[request] = time.monotonic() + REQUEST_S
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be made
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug("a client went away", exc_info=True)

    def _cut_late(self) -> None:
        """Cut clients that are late, whatever they still send or read."""
        now_s = time.monotonic()
        for request, until_s in list(self._served.items()):
            if now_s >= until_s:
                with contextlib.suppress(OSError):  # it is done at this moment
                    request.shutdown(socket.SHUT_RDWR)
        while self._lingering and now_s >= self._lingering[0][0]:
            self._lingering.popleft()[1].close()

    def _leave(self, request: socket.socket) -> None:
        if self._served.pop(request, None) is not None:
            self._room.release()

    def _turn_away(self, request: socket.socket) -> None:
        with contextlib.suppress(OSError):
            request.setblocking(False)
            request.send(self.busy_answer)  # a new socket has room for it
            request.shutdown(socket.SHUT_WR)
        self._lingering.append((time.monotonic() + LINGER_S, request))
        if len(self._lingering) > LINGERING:
            self._lingering.popleft()[1].close()
