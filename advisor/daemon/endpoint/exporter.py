"""The endpoint for Prometheus and `watch --host`: on threads of its own, behind a token.

No client can make the daemon wait. TLS is left to a reverse proxy (docs/daemon.md).
"""

from __future__ import annotations

import errno
import hmac
import io
import ipaddress
import logging
import socket
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client.registry import Collector

from gpuadvisor.daemon.bounded_server import REQUEST_S, BoundedServer
from gpuadvisor.daemon.configuration import Prometheus
from gpuadvisor.daemon.endpoint import answer as remote_answer
from gpuadvisor.daemon.endpoint import past_answer
from gpuadvisor.daemon.endpoint.answer import RemoteAnswer
from gpuadvisor.daemon.endpoint.exposition import Exposition
from gpuadvisor.daemon.endpoint.exposition_text import encoder
from gpuadvisor.daemon.endpoint.past_answer import PastAnswer
from gpuadvisor.daemon.endpoint.tokens import read_token
from gpuadvisor.daemon.figures import Figures
from gpuadvisor.domain.telemetry import Event, Frame
from gpuadvisor.errors import AdvisorError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from wsgiref.types import StartResponse, WSGIEnvironment

LOG = logging.getLogger(__name__)
CLIENTS = 16
"""Clients that are served at once; Prometheus itself makes one request at a time."""
BUSY = b"Too many clients: try again.\n"
BUSY_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nServer: gpuadvisor\r\nRetry-After: 1\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
) % (len(BUSY), BUSY)
ANSWERED_S = 1.0
"""Seconds for which an answer is used again: full frames come once a second."""
FORMATS = 4
"""Answers that are kept at most: clients may ask for versions of a format that nobody knows."""
PLAIN = "text/plain; charset=utf-8"


class Exporter:
    """The endpoint, open until `close`; UsageError or AdvisorError where it cannot be opened."""

    def __init__(self, figures: Figures, chosen: Prometheus, folder: Path | None = None) -> None:
        """Tell `figures`, and of a store's folder what was before."""
        token = read_token(chosen.token_file, chosen.token_variable)
        self._chosen = chosen
        self._server = _open(chosen)
        self._frames = RemoteAnswer(figures, processes=chosen.processes)
        past = None if folder is None else PastAnswer(folder, withheld=self._frames.withheld)
        self._endpoint = Endpoint(Exposition(figures, chosen), token, self._frames, past)
        self._server.set_app(self._endpoint)
        self._server.begin("exporter")
        if token is None and not ipaddress.ip_address(chosen.address.host).is_loopback:
            LOG.warning(
                "the endpoint %s is open to everybody who can reach it: set token_file in"
                " [prometheus], or the address 127.0.0.1",
                self.url,
            )

    @property
    def url(self) -> str:
        """The URL of the metrics."""
        host, port = self._server.server_address[:2]
        return f"http://{f'[{host!s}]' if ':' in str(host) else str(host)}:{port}/metrics"

    def take(self, frame: Frame, events: Sequence[Event]) -> None:
        """Keep a frame, with the events that began or ended with it, for `watch --host`."""
        self._frames.take(frame, events)

    def renew_token(self) -> None:
        """Ask from now on for the token as it stands in its file now; UsageError as at first."""
        chosen = self._chosen
        self._endpoint.token = read_token(chosen.token_file, chosen.token_variable)

    def close(self) -> None:
        """Close the endpoint; answers on their way are cut."""
        self._server.end()


class Endpoint:
    """The WSGI app behind the token: /metrics, made once a second, /watch and /watch/past."""

    def __init__(
        self,
        collector: Collector,
        token: bytes | None,
        frames: RemoteAnswer,
        past: PastAnswer | None,
    ) -> None:
        self._collector = collector
        self._frames = frames
        self._past = past
        self.token = token
        """The bearer token that is asked for; None where everybody may read."""
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[float, str, bytes]] = {}
        """Monotonic time, content type and body of the answer to each Accept header."""

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        kind, extra = PLAIN, []
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            status, body = HTTPStatus.NOT_IMPLEMENTED, b"Only GET and HEAD are served.\n"
        elif not self._is_allowed(environ.get("HTTP_AUTHORIZATION", "")):
            status, body = HTTPStatus.UNAUTHORIZED, b"A bearer token is needed.\n"
            extra = [("WWW-Authenticate", "Bearer")]
        elif environ["PATH_INFO"] == "/metrics":
            status, (kind, body) = HTTPStatus.OK, self._answer(environ)
        elif environ["PATH_INFO"] == remote_answer.PATH:
            accepted = environ.get("HTTP_ACCEPT_ENCODING", "")
            body, extra = self._frames.body(environ.get("QUERY_STRING", ""), accepted)
            status, kind = HTTPStatus.OK, remote_answer.KIND
        elif self._past and environ["PATH_INFO"] == past_answer.PATH:
            body = self._past.body(environ.get("QUERY_STRING", ""))
            status, kind = HTTPStatus.OK, past_answer.KIND
        elif environ["PATH_INFO"] == "/":
            status, body = HTTPStatus.OK, b"gpuadvisor: the metrics are at /metrics\n"
        else:
            status, body = HTTPStatus.NOT_FOUND, b"The metrics are at /metrics.\n"
        headers = [("Server", "gpuadvisor"), ("Content-Type", kind)]
        headers += [("Content-Length", str(len(body))), *extra]
        start_response(f"{status.value} {status.phrase}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _is_allowed(self, authorization: str) -> bool:
        token = self.token
        if token is None:
            return True
        scheme, _, given = authorization.partition(" ")
        given_bytes = given.strip().encode("latin-1", "replace")
        return hmac.compare_digest(given_bytes, token) and scheme.lower() == "bearer"

    def _answer(self, environ: WSGIEnvironment) -> tuple[str, bytes]:
        """Return content type and body, made once a second at most, however many ask."""
        accept = environ.get("HTTP_ACCEPT", "")
        with self._lock:
            made = self._answers.get(accept)
            if made is None or time.monotonic() - made[0] > ANSWERED_S:
                if len(self._answers) >= FORMATS:
                    self._answers.clear()
                # No gzip: it would cost the daemon CPU time with each scrape.
                encode, kind = encoder(accept)
                body = encode(self._collector)
                made = self._answers[accept] = (time.monotonic(), kind, body)
        return made[1:]


class _Server(BoundedServer, WSGIServer):
    """An HTTP server that tells those for whom it has no room to come again."""

    clients = CLIENTS
    busy_answer = BUSY_ANSWER

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_S

    def get_stderr(self) -> _DebugLog:
        return _DebugLog()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        LOG.debug("%s %s", self.address_string(), format % args)


class _DebugLog(io.StringIO):
    """A stream into the log, for the tracebacks that wsgiref writes of requests that failed."""

    def write(self, text: str, /) -> int:
        LOG.debug("%s", text.rstrip())
        return len(text)


def _open(chosen: Prometheus) -> _Server:
    where = chosen.address
    try:
        return _Server(chosen.address.host, chosen.address.port)
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
