"""One question to another machine's endpoint: whatever else may answer there is a sentence."""

from __future__ import annotations

import http.client
import io
import socket
import time
import zlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from gpuadvisor.daemon.endpoint.hosts import TOKEN_VARIABLE, Host
from gpuadvisor.errors import AdvisorError, UsageError
from gpuadvisor.printable import brief, printable
from gpuadvisor.version import __version__

ANSWER_S = 5.0
"""Seconds for a whole answer, from the connection on: the endpoint itself gives no more."""
MAX_BYTES = 64 << 20
"""An answer for 64 GPUs has 10 MB; more is none."""
READ_BYTES = 1 << 16
OURS = "gpuadvisor"
"""The endpoint's `Server`."""


class RemoteError(AdvisorError):
    """Another machine did not answer as a daemon does; the sentence says what to do about it."""


class TooLateError(RemoteError):
    """The answer took too long."""


def fetched(host: Host, question: str) -> bytes:
    """Return the body of the answer to a question, a path with its query; RemoteError with what is
    wrong where there is none."""
    import ssl

    try:
        token = host.token()
    except UsageError as error:
        raise RemoteError(str(error)) from None
    headers = {"User-Agent": f"{OURS}/{__version__}", "Accept-Encoding": "gzip"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    connection = _Connection(host)
    try:
        connection.request("GET", f"{host.path}{question}", headers=headers)
        answer = connection.getresponse()
        if answer.status != HTTPStatus.OK:
            raise _refusal(host, answer, has_token=token is not None)
        return _unpacked(host, answer)
    except TimeoutError:
        raise TooLateError(f"{host.place} has not answered within {ANSWER_S:.0f} s.") from None
    except ssl.SSLError as error:
        raise _distrust(host, error) from None
    except ConnectionRefusedError:
        raise RemoteError(
            f"Nothing listens on {host.place}: `gpuadvisor daemon start --prometheus"
            f" ADDRESS:{host.port}` there begins a daemon that does, on that machine's ADDRESS."
        ) from None
    except socket.gaierror as error:
        why = error.strerror
        raise RemoteError(f"No machine is known as {host.address} ({why}): check it.") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise RemoteError(f"{host.place} cannot be reached ({why}).") from None
    except http.client.HTTPException as error:
        raise stranger(host, brief(str(error) or repr(error))) from None
    finally:
        connection.end()


class _Connection(http.client.HTTPConnection):
    """A connection on which everything together takes no longer than ANSWER_S."""

    def __init__(self, host: Host) -> None:
        super().__init__(host.address, host.port)
        self._asked = host
        self._until = time.monotonic() + ANSWER_S
        self._made: socket.socket | None = None

    def connect(self) -> None:
        self._made = socket.create_connection((self.host, self.port), timeout=ANSWER_S)
        if self._asked.is_tls:
            self._made = _secured(self._asked, self._made)
        self.sock: Any = _Timed(self._made, self._until)

    def end(self) -> None:
        """Close it; http.client's `close` leaves an answer open that is not read so far."""
        self.close()
        if self._made is not None:
            self._made.close()


def _secured(host: Host, made: socket.socket) -> socket.socket:
    import ssl

    try:
        context = ssl.create_default_context(cafile=host.ca_file)
    except (OSError, ValueError) as error:
        made.close()
        if isinstance(error, ssl.SSLError) or not isinstance(error, OSError):
            why = "it holds no certificate in PEM"
        else:
            why = error.strerror or str(error)
        raise RemoteError(f"The `ca_file` {host.ca_file} cannot be used: {why}.") from None
    try:
        return context.wrap_socket(made, server_hostname=host.address)
    except BaseException:
        made.close()
        raise


class _Timed(io.RawIOBase):
    """A socket for http.client, of which each read and write has only the time that is left.

    A timeout of the socket itself begins anew with each byte that comes.
    """

    def __init__(self, made: socket.socket, until: float) -> None:
        self._socket = made
        self._until = until

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Timed(self._socket, self._until))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._hurry()
        return self._socket.recv_into(buffer)

    def sendall(self, data: bytes) -> None:
        self._hurry()
        self._socket.sendall(data)

    def _hurry(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)


def _unpacked(host: Host, answer: http.client.HTTPResponse) -> bytes:
    """Return the body, unpacked as it comes, so that a small one cannot fill the memory."""
    is_packed = answer.headers.get("Content-Encoding", "").strip().lower() == "gzip"
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS) if is_packed else None
    body = bytearray()
    try:
        while piece := answer.read1(READ_BYTES):
            body += unpacker.decompress(piece, MAX_BYTES) if unpacker else piece
            if len(body) > MAX_BYTES or (unpacker and unpacker.unconsumed_tail):
                raise stranger(host, "an answer without end")
    except zlib.error:
        raise stranger(host, "an answer that cannot be unpacked") from None
    if answer.length or (unpacker and not unpacker.eof):
        raise RemoteError(f"The answer of {host.place} was cut off.")
    return bytes(body)


def _refusal(host: Host, answer: http.client.HTTPResponse, *, has_token: bool) -> RemoteError:
    """Return what an answer without frames means, and what to do about it."""
    status = answer.status
    if status == HTTPStatus.UNAUTHORIZED and has_token:
        return RemoteError(
            f"{host.name} refuses the token {host.token_words}: it must be that of `token_file` in"
            " its daemon's configuration."
        )
    if status == HTTPStatus.UNAUTHORIZED:
        return RemoteError(
            f"{host.name} asks for a token: name its file with --token-file or `token_file` in"
            f" [[host]], or put it into the environment ({TOKEN_VARIABLE})."
        )
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return RemoteError(f"{host.name} serves as many clients as it can now: it is asked again.")
    is_ours = answer.headers.get("Server", "") == OURS
    if status == HTTPStatus.NOT_FOUND and is_ours:
        return RemoteError(
            f"{host.name} runs a gpuadvisor that is too old to be watched from here, and gives"
            " Prometheus its metrics only: update it there, and restart its daemon."
        )
    if 300 <= status < 400:
        where = brief(answer.headers.get("Location", "elsewhere"))
        return RemoteError(f"{host.place} sends one to {where}: name that address.")
    return stranger(host, f"HTTP status {status}")


def stranger(host: Host, said: str) -> RemoteError:
    """Return that something else answers, with what it said."""
    return RemoteError(
        f"What answers on {host.place} is no daemon of gpuadvisor ({printable(said)}): check the"
        " port, and whether it is http:// or https://."
    )


def _distrust(host: Host, error: Exception) -> RemoteError:
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return RemoteError(
            f"The certificate of {host.name} is not trusted ({error.verify_message}): name whom to"
            " trust with `ca_file` in [[host]], or the address that the certificate is for."
        )
    why = getattr(error, "reason", None) or str(error)
    return RemoteError(
        f"{host.place} speaks no TLS as it should ({why}): without TLS it is http://{host.place}."
    )


def harmless(thing: Any) -> Any:
    """Return a document of JSON whose texts cannot command a terminal."""
    if isinstance(thing, str):
        return printable(thing)
    if isinstance(thing, Mapping):
        return {harmless(key): harmless(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [harmless(each) for each in thing]
    return thing
