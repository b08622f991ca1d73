"""Hands a trace on this machine to Perfetto's page in the browser, which uploads nothing."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shutil import copyfileobj
from typing import Any
from urllib.parse import quote

from gpuadvisor.errors import UsageError

PAGE = "https://ui.perfetto.dev"
PORT = 9001
"""The only port of a user's own machine from which Perfetto's page may fetch (its content security
policy; `tools/open_trace_in_ui` of Perfetto uses it as well)."""
PATIENCE_S = 0.2
"""Time after which is asked whether the user gave up."""


class TraceServer:
    """Serves one file on this machine, to Perfetto's page."""

    def __init__(self, file: Path, port: int = PORT) -> None:
        """UsageError where another program uses the port; 0 is any free one."""
        self._file = file
        try:
            self._server = _Server(file, port)
        except OSError as error:
            raise UsageError(
                f"port {port}, the only one from which Perfetto's page fetches traces, cannot be"
                f" used ({error.strerror}): end what uses it, or write a file with -o and open it"
                f" at {PAGE}"
            ) from error

    @property
    def address(self) -> str:
        """Where the file is."""
        return f"http://127.0.0.1:{self._server.server_port}/{quote(self._file.name)}"

    @property
    def page(self) -> str:
        """The page that shows it."""
        return f"{PAGE}/#!/?url={self.address}"

    def serve(self, cancelled: Callable[[], bool]) -> bool:
        """Answer until the file was fetched, and return True; False where it was cancelled."""
        with self._server as server:
            while not server.fetched and not cancelled():
                server.handle_request()
            return server.fetched


class _Server(HTTPServer):
    allow_reuse_address = True
    timeout = PATIENCE_S

    def __init__(self, file: Path, port: int) -> None:
        self.file = file
        self.fetched = False
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave out what a browser that goes away makes of it."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 60.0

    def do_OPTIONS(self) -> None:
        """Answer whether a page may fetch from the user's own machine."""
        self._head(204, 0)

    def do_GET(self) -> None:
        """Send the file."""
        file = self.server.file
        if self.path != f"/{quote(file.name)}":
            self._head(404, 0)
            return
        with file.open("rb") as content:
            self._head(200, file.stat().st_size)
            copyfileobj(content, self.wfile)
        self.server.fetched = True

    def _head(self, status: int, size: int) -> None:
        self.send_response(status)
        self.send_header("Access-Control-Allow-Origin", PAGE)
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Content-Length", str(size))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""
