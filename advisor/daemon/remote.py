"""The daemon of another machine as a source of frames, through its endpoint.

Whatever answers there, or does not, is a frame with the reason as its problem, and what was known
is stale. Times are the other machine's own.
"""

from __future__ import annotations

import http.client
import io
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from gpuadvisor.collectors.telemetry.decoding import decode
from gpuadvisor.daemon.hosts import TOKEN_VARIABLE, Host
from gpuadvisor.daemon.remote_answer import PATH, VERSION, Header
from gpuadvisor.daemon.sources import SILENT_S
from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.metrics import BY_NAME
from gpuadvisor.domain.telemetry import Frame, Sample, State, Unavailable
from gpuadvisor.errors import AdvisorError, UsageError
from gpuadvisor.printable import brief, duration, printable
from gpuadvisor.version import __version__

EVERY_S = 1.0
"""Seconds between two questions: the daemon has a frame a second."""
AGAIN_S = 2.0
"""Seconds after which a host that did not answer is asked again."""
ANSWER_S = 5.0
"""Seconds for a whole answer, from the connection on: the endpoint itself gives no more."""
LITTLE_S = 5.0
"""What is asked for at first over a link that is too slow for the last two minutes, in seconds."""
MAX_BYTES = 64 << 20
"""An answer for 64 GPUs has 10 MB; more is none."""
READ_BYTES = 1 << 16
SKEW_S = 3.0
"""Seconds by which another machine's clock may be wrong before that is said. [own]"""
LATEST_S = 253402300799.0
"""The last second that a date of Python can have."""
OURS = "gpuadvisor"
"""The endpoint's `Server`."""


class RemoteError(AdvisorError):
    """Another machine did not answer as a daemon does; the sentence says what to do about it."""


class _TooLateError(RemoteError):
    """The answer took too long."""


class Remote:
    """A source that asks one host once a second; it can be asked from one thread at a time."""

    label = "daemon"
    has_all_events = True

    def __init__(self, host: Host, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.host = host
        self.problem: str | None = None
        """Why it has no values of now, in one sentence; None where it has, or was not asked yet."""
        self.is_heard = False
        """Whether it answered the last question, whatever its daemon can read."""
        self.ahead_s: float | None = None
        """By how much its clock is ahead of this machine's, in seconds; None while that is not
        known, or less than the time that its answers take."""
        self.withheld: str | None = None
        self._clock = clock
        self._closed = threading.Event()
        self._heard: tuple[float, float] | None = None
        """When it answered last by our clock, and its own Unix time then."""
        self._newest_s: float | None = None
        """Unix time of its newest frame."""
        self._latest = Latest()
        self._last_s: float | None = None
        """Asks for no more at first than so many seconds; None: for all there is."""

    @property
    def silent_s(self) -> float | None:
        """Seconds since it answered last; None where it never did."""
        return None if self._heard is None else self._clock() - self._heard[0]

    @property
    def remark(self) -> str | None:
        """What is odd while it answers, in one sentence."""
        if self.ahead_s is None or abs(self.ahead_s) < SKEW_S:
            return None
        way = "ahead of" if self.ahead_s > 0 else "behind"
        return (
            f"The clock of {self.host.name} is {duration(abs(self.ahead_s))} {way} this machine's;"
            " times here are its own."
        )

    def frames(self) -> Iterator[Frame]:
        """Yield its frames as they come, and one with a problem while none do."""
        while not self._closed.is_set():
            began = self._clock()
            yield from self.ask()
            every_s = EVERY_S if self.problem is None else AGAIN_S
            self._closed.wait(max(every_s - (self._clock() - began), every_s / 10))

    def close(self) -> None:
        self._closed.set()

    def ask(self) -> list[Frame]:
        """Ask once, and return the frames that are new; one with the problem where there is one."""
        try:
            header, frames = self._answer()
            self.is_heard = True
        except RemoteError as error:
            self.is_heard = False
            if isinstance(error, _TooLateError) and self._newest_s is None:
                self._last_s = LITTLE_S
            return [self._without_values(str(error), f"{self.host.name} does not answer")]
        self.withheld = header.withheld and printable(header.withheld)
        for frame in frames:
            self._latest.add(frame)
            self._newest_s = frame.time_s
        if self._newest_s is None:
            return [self._without_values(f"The daemon of {self.host.name} has no values so far.")]
        old_s = header.now_s - self._newest_s
        if old_s >= SILENT_S:
            problem = (
                f"The daemon of {self.host.name} has read nothing for {duration(old_s)}: its log"
                " and `gpuadvisor daemon status` there say more."
            )
            return [*frames, self._without_values(problem, "its daemon reads nothing")]
        self.problem = None
        return frames

    def _without_values(self, problem: str, reason: str = "") -> Frame:
        """Return a frame in which nothing is current: what was known is stale."""
        self.problem = problem
        samples = {}
        for device, newest in self._latest.devices.items():
            gone = dict(newest.unavailable)
            for metric in BY_NAME:
                if metric not in gone and (known := newest.known(metric)) is not None:
                    gone[metric] = Unavailable(State.STALE, known[0], reason)
            samples[device] = Sample({}, gone)
        now_s = time.time() if self._heard is None else self._heard[1] + (self.silent_s or 0.0)
        return Frame(now_s, samples, problem=problem)

    def _answer(self) -> tuple[Header, list[Frame]]:
        query = ""
        if self._newest_s is not None:
            query = f"?since={self._newest_s!r}"
        elif self._last_s is not None:
            query = f"?last={self._last_s:g}"
        sent_s, began = time.time(), self._clock()
        body = _fetched(self.host, query)
        took_s = self._clock() - began
        header, frames = _read(self.host, body)
        self._heard = (self._clock(), header.now_s)
        ahead_s = header.now_s - (sent_s + took_s / 2)
        self.ahead_s = ahead_s if abs(ahead_s) > took_s / 2 else None
        if self._newest_s is not None and frames and frames[0].time_s < self._newest_s:
            self._newest_s = None  # its clock was set back
        return header, frames


# -- one question over HTTP ------------------------------------------------------------------------


def _fetched(host: Host, query: str) -> bytes:
    """Return the body of an answer; RemoteError with what is wrong where there is none."""
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
        connection.request("GET", f"{host.path}{PATH}{query}", headers=headers)
        answer = connection.getresponse()
        if answer.status != HTTPStatus.OK:
            raise _refusal(host, answer, has_token=token is not None)
        return _unpacked(host, answer)
    except TimeoutError:
        raise _TooLateError(f"{host.place} has not answered within {ANSWER_S:.0f} s.") from None
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
        raise _stranger(host, brief(str(error) or repr(error))) from None
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
                raise _stranger(host, "an answer without end")
    except zlib.error:
        raise _stranger(host, "an answer that cannot be unpacked") from None
    if answer.length or (unpacker and not unpacker.eof):
        raise RemoteError(f"The answer of {host.place} was cut off.")
    return bytes(body)


def _read(host: Host, body: bytes) -> tuple[Header, list[Frame]]:
    first, *lines = body.split(b"\n")
    try:
        header = msgspec.json.decode(first, type=Header)
    except (msgspec.DecodeError, RecursionError):
        raise _stranger(host, brief(first.decode("utf-8", "replace"))) from None
    if header.version > VERSION:
        raise RemoteError(
            f"{host.name} runs gpuadvisor {printable(header.gpuadvisor)}, which this one"
            f" ({__version__}) does not understand: update it here."
        )
    try:
        frames = [_checked(_frame(line)) for line in lines if line]
        if not 0 <= header.now_s <= LATEST_S:
            raise ValueError("a time beyond all dates")
    except ValueError as error:
        raise _stranger(host, f"a line that is no frame: {brief(str(error))}") from None
    return header, frames


def _checked(frame: Frame) -> Frame:
    """Return a frame whose times are dates; ValueError where they are not."""
    times = [frame.time_s]
    for event in frame.events:
        times += [event.began_s, event.began_s if event.ended_s is None else event.ended_s]
    for sample in frame.samples.values():
        times += [each.since_s for each in sample.unavailable.values()]
    times += [each.started_s for each in frame.processes or () if each.started_s is not None]
    if not all(0 <= time_s <= LATEST_S for time_s in times):
        raise ValueError("a time beyond all dates")
    return frame


def _frame(line: bytes) -> Frame:
    """Return the frame of a line, whose texts cannot command a terminal; ValueError for none."""
    frame = decode(line)
    if line.isascii() and line.decode("ascii").isprintable() and b"\\" not in line:
        return frame
    return msgspec.convert(_printed(msgspec.to_builtins(frame)), Frame)


def _printed(thing: Any) -> Any:
    if isinstance(thing, str):
        return printable(thing)
    if isinstance(thing, Mapping):
        return {_printed(key): _printed(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [_printed(each) for each in thing]
    return thing


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
    return _stranger(host, f"HTTP status {status}")


def _stranger(host: Host, said: str) -> RemoteError:
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
