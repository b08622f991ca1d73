"""The Prometheus endpoint: HTTP on its own threads, which no client can make the daemon wait for.

TLS is left to a reverse proxy (docs/daemon.md).
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import logging
import os
import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gpuadvisor.daemon.configuration import Prometheus
from gpuadvisor.daemon.exposition import Exposition
from gpuadvisor.daemon.figures import Figures
from gpuadvisor.errors import AdvisorError, UsageError

LOG = logging.getLogger(__name__)
CLIENTS = 16
"""At once; Prometheus itself makes one request at a time."""
CLIENT_TIMEOUT_S = 10.0
"""Without a byte; Prometheus gives up after as long (scrape_timeout)."""
RENDERED_S = 1.0
"""How long an answer is used again: whole frames come once a second."""
FORMATS = 4
"""Answers that are kept; clients may ask for versions of a format that nobody has heard of."""
MAX_TOKEN_BYTES = 4096


class Exporter:
    """The endpoint while the block runs; UsageError or AdvisorError where it cannot be opened."""

    def __init__(self, figures: Figures, chosen: Prometheus) -> None:
        token = read_token(chosen)
        self._server = _open(chosen, Renderer(Exposition(figures, chosen)), token)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="exporter", daemon=True
        )
        self._thread.start()
        if token is None and not ipaddress.ip_address(chosen.address.host).is_loopback:
            LOG.warning(
                "the endpoint %s is open to everybody who can reach it: set token_file in"
                " [prometheus], or the address 127.0.0.1",
                self.url,
            )

    @property
    def url(self) -> str:
        """The address of the metrics."""
        host, port = self._server.server_address[:2]
        return f"http://{f'[{host!s}]' if ':' in str(host) else str(host)}:{port}/metrics"

    def close(self) -> None:
        """Stop listening; answers on their way are cut."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Renderer:
    """Makes the answer once a second at most, however many ask."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._lock = threading.Lock()
        self._made: dict[str, tuple[float, bytes]] = {}

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the answer in the format that is accepted, and its content type."""
        encode, kind = choose_encoder(accept)
        with self._lock:
            made = self._made.get(kind)
            if made is None or time.monotonic() - made[0] > RENDERED_S:
                if len(self._made) >= FORMATS:
                    self._made.clear()
                made = self._made[kind] = (time.monotonic(), encode(self._collector))
        return made[1], kind


def read_token(chosen: Prometheus) -> bytes | None:
    """Return the bearer token; None where none is asked for."""
    if chosen.token_file:
        path = Path(chosen.token_file)
        try:
            with path.open("rb") as file:
                token = file.read(MAX_TOKEN_BYTES).strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"The token file {path} cannot be read ({reason}).") from None
        where = f"The token file {path}"
    elif chosen.token_variable:
        token = os.environ.get(chosen.token_variable, "").strip().encode()
        where = f"The environment variable {chosen.token_variable}"
    else:
        return None
    if not token:
        raise UsageError(f"{where} is empty: write a token there, as from `openssl rand -hex 32`.")
    return token


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    # Whoever restarts the daemon gets the port at once; two listeners stay impossible.
    allow_reuse_address = True

    def __init__(self, chosen: Prometheus, renderer: Renderer, token: bytes | None) -> None:
        self.address_family = socket.AF_INET6 if ":" in chosen.address.host else socket.AF_INET
        self.renderer = renderer
        self.token = token
        self._room = threading.BoundedSemaphore(CLIENTS)
        super().__init__((chosen.address.host, chosen.address.port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be made
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug("a client of the endpoint went away", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CLIENT_TIMEOUT_S
    server_version = "gpuadvisor"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if not self._is_allowed():
            self._answer(
                HTTPStatus.UNAUTHORIZED,
                b"A bearer token is needed.\n",
                extra=("WWW-Authenticate", "Bearer"),
            )
        elif path == "/metrics":
            body, kind = self.server.renderer.render(self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, body, kind)
        elif path == "/":
            self._answer(HTTPStatus.OK, b"gpuadvisor: the metrics are at /metrics\n")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"The metrics are at /metrics.\n")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _is_allowed(self) -> bool:
        if self.server.token is None:
            return True
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        given_bytes = given.strip().encode("latin-1", "replace")
        same = hmac.compare_digest(given_bytes, self.server.token)
        return same and scheme.lower() == "bearer"

    def _answer(
        self,
        status: HTTPStatus,
        body: bytes,
        kind: str = "text/plain; charset=utf-8",
        extra: tuple[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if extra:
            self.send_header(*extra)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        LOG.debug("%s %s", self.address_string(), format % args)


def _open(chosen: Prometheus, renderer: Renderer, token: bytes | None) -> _Server:
    where = chosen.address
    try:
        return _Server(chosen, renderer, token)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AdvisorError(
                f"The address {where} is taken by another program: set another one with"
                " `address` in [prometheus] of the configuration, or with --prometheus."
            ) from None
        raise AdvisorError(
            f"The endpoint cannot listen on {where} ({error.strerror}): set another `address`"
            " in [prometheus] of the configuration, or with --prometheus."
        ) from None
