"""Alerts: which events are sent to whom, when and how often, by a command or a webhook.

Each rule has a queue and a thread of its own: no receiver can delay the daemon or another rule.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache

from gpuadvisor.daemon.configuration import AlertRule
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Gpu
from gpuadvisor.printable import duration
from gpuadvisor.rules.alert_states import LONGEST_STEP_S, UNSEEN

LOG = logging.getLogger(__name__)
WAITING = 100
"""Notices that one rule keeps while its webhook fails; more are dropped, and the log says so."""
RETRY_S = (2.0, 8.0, 30.0, 120.0)
"""Pauses before another try of a webhook: together longer than most restarts of a server."""
OUTPUT_BYTES = 4096
"""The end of a command's output, in bytes, that goes to the log."""
VALUE_CHARACTERS = 8192
"""The length of an environment variable for a command, in characters, beyond which it is cut."""
CLOSE_S = 5.0
"""Seconds that the daemon's end waits for notices on their way."""
LEFT_S = 120.0
"""Seconds after a start within which what a killed daemon left open may begin again: twice the
slowest pace of any metric. [own]"""
RETRIED_STATUS = frozenset({408, 425, 429, *range(500, 600)})
"""HTTP: the server says that another try may work."""
Subject = tuple[str, str | None, str]
"""Kind, GPU and key of an event, of which notices are not sent again too soon."""
Identity = tuple[str, str | None, str, float]


class Refused(Exception):  # noqa: N818 - the server's answer
    """A webhook does not want the notice, however often it is sent."""


@dataclass(frozen=True)
class Notice:
    """A notice that an event fires, or is over (recovered)."""

    alert: str
    status: str
    """`firing` or `recovered`."""
    event: Event
    gpu_index: int | None
    is_end_seen: bool = True
    """Whether the event was seen to end, and not only not seen any more."""

    @property
    def text(self) -> str:
        """The notice in one sentence."""
        event = self.event
        if self.status != "recovered":
            return event.message
        return how_it_ended(event, is_end_seen=self.is_end_seen)

    def as_json(self) -> str:
        """Return the JSON that a command reads and a webhook gets; chats show its `text`."""
        event = asdict(self.event)
        event.update(data=dict(self.event.data), severity=str(self.event.severity))
        return json.dumps(
            {
                "version": 1,
                "alert": self.alert,
                "status": self.status,
                "text": f"{host()}: {self.text}",
                "host": host(),
                "gpu_index": self.gpu_index,
                "event": event,
            }
        )

    def environment(self) -> dict[str, str]:
        """Return the environment variables for a command; absent values are empty."""
        event = self.event
        values = {
            "ALERT": self.alert,
            "STATUS": self.status,
            "TEXT": self.text,
            "HOST": host(),
            "KIND": event.kind,
            "KEY": event.key,
            "SEVERITY": str(event.severity),
            "MESSAGE": event.message,
            "GPU": event.gpu or "",
            "GPU_INDEX": "" if self.gpu_index is None else str(self.gpu_index),
            "BEGAN_S": repr(event.began_s),
            "ENDED_S": "" if event.ended_s is None else repr(event.ended_s),
        }
        # A null byte in whatever the driver said would keep the command from being started, as
        # would a value of 128 KiB (execve(2), MAX_ARG_STRLEN).
        return {
            f"GPUADVISOR_EVENT_{name}": value.replace("\0", "?")[:VALUE_CHARACTERS]
            for name, value in values.items()
        }


def is_end_seen(event: Event, time_s: float) -> bool:
    """Return whether an event whose end is told at a Unix time was seen to end then, and did not
    only end when it was seen last, long before."""
    if UNSEEN in event.data:
        return False
    return event.ended_s is None or abs(time_s - event.ended_s) <= LONGEST_STEP_S


def how_it_ended(event: Event, *, is_end_seen: bool) -> str:
    """Return the end of an event in a sentence."""
    lasted = duration((event.ended_s or event.began_s) - event.began_s)
    how = "Over" if is_end_seen else "Nobody could see whether it went on"
    return f"{how} after {lasted}: {event.message}"


class Dispatchers:
    """Threads that send notices: one with a queue for each rule, begun with its first notice."""

    def __init__(self, retry_s: Sequence[float] = RETRY_S) -> None:
        self._retry_s = retry_s
        self._dispatchers: dict[AlertRule, _Dispatcher] = {}

    def send(self, rule: AlertRule, notice: Notice) -> None:
        """Queue a notice for its rule's thread, without waiting."""
        if rule not in self._dispatchers:
            self._dispatchers[rule] = _Dispatcher(rule, self._retry_s)
        self._dispatchers[rule].put(notice)

    def keep(self, rules: Sequence[AlertRule]) -> None:
        """End the threads of rules that are no more, once they have sent what they have."""
        for rule in set(self._dispatchers) - set(rules):
            self._dispatchers.pop(rule).finish()

    def close(self, wait_s: float = CLOSE_S) -> None:
        """Send what is waiting, for as long as this; what is left then is lost, and said."""
        deadline = time.monotonic() + wait_s
        for dispatcher in self._dispatchers.values():
            dispatcher.finish()
        for dispatcher in self._dispatchers.values():
            dispatcher.join(max(deadline - time.monotonic(), 0.0))
        self._dispatchers.clear()


class _Dispatcher:
    def __init__(self, rule: AlertRule, retry_s: Sequence[float]) -> None:
        self._rule = rule
        self._retry_s = retry_s
        self._waiting: queue.Queue[Notice | None] = queue.Queue(WAITING)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"alert {rule.name}")
        self._thread.start()

    def put(self, notice: Notice) -> None:
        try:
            self._waiting.put_nowait(notice)
        except queue.Full:
            LOG.error(
                'alert "%s": %s notices wait already, so this one is dropped: %s',
                self._rule.name,
                WAITING,
                notice.text,
            )

    def finish(self) -> None:
        self._ending.set()
        if not self._waiting.full():
            self._waiting.put_nowait(None)

    def join(self, wait_s: float) -> None:
        self._thread.join(wait_s)
        if self._thread.is_alive() and not self._waiting.empty():
            LOG.error('alert "%s": what was not sent by now is dropped', self._rule.name)

    def _run(self) -> None:
        while not (self._ending.is_set() and self._waiting.empty()):
            notice = self._waiting.get()
            if notice is None:
                continue
            try:
                if self._rule.command:
                    run_command(self._rule, notice)
                else:
                    self._post(notice)
            except Exception as error:
                LOG.error(
                    'alert "%s": "%s" could not be sent (%s)', self._rule.name, notice.text, error
                )

    def _post(self, notice: Notice) -> None:
        """Try until it works, with longer and longer pauses; at the daemon's end only once."""
        for pause_s in (*self._retry_s, None):
            try:
                post(self._rule, notice)
                return
            except Refused:
                raise
            except Exception as error:
                if pause_s is None or self._ending.is_set():
                    raise
                LOG.warning(
                    'alert "%s": the webhook failed (%s); trying again in %s',
                    self._rule.name,
                    error,
                    duration(pause_s),
                )
                self._ending.wait(pause_s)


def run_command(rule: AlertRule, notice: Notice) -> None:
    """Run a rule's command, without a shell, with the event on its stdin."""
    with subprocess.Popen(
        rule.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **notice.environment()},
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(notice.as_json().encode(), rule.timeout_s)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            limit = duration(rule.timeout_s)
            raise TimeoutError(f"{rule.command[0]} was ended after {limit}") from None
    shown = output[-OUTPUT_BYTES:].decode("utf-8", "replace").strip()
    for line in shown.splitlines():
        LOG.info('alert "%s": %s', rule.name, line)
    if process.returncode:
        raise ChildProcessError(f"{rule.command[0]} ended with status {process.returncode}")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a command with all that it started; its pipe may be held by what left its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()


def post(rule: AlertRule, notice: Notice) -> None:
    """Post a notice to a rule's webhook; Refused where the server does not want it."""
    assert rule.webhook is not None
    post_json(rule.webhook, notice.as_json(), rule.timeout_s)


def post_json(webhook: str, text: str, timeout_s: float) -> None:
    """Post JSON to a webhook; Refused where the server does not want it."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    headers = {"Content-Type": "application/json", "User-Agent": "gpuadvisor"}
    request = Request(webhook, text.encode(), headers, method="POST")
    try:
        with urlopen(request, timeout=timeout_s):
            return
    except HTTPError as error:
        error.close()
        if error.code not in RETRIED_STATUS:
            raise Refused(f"the webhook answered {error.code} {error.reason}") from None
        raise ConnectionError(f"the webhook answered {error.code} {error.reason}") from None
    except HTTPException as error:
        raise ConnectionError(f"the webhook does not speak HTTP: {error!r}") from None


@cache
def host() -> str:
    """Return this machine's name."""
    return socket.gethostname()


@dataclass
class _Lasting:
    """An event that lasts, as one rule sees it."""

    event: Event
    since_s: float
    """The time of the clock that nobody sets at which it began."""
    is_sent: bool = False
    """Whether a notice of its beginning was sent, so that one of its end is sent as well."""
    is_settled: bool = False
    """Whether a notice was sent, or kept back because one was sent not long ago."""


class Alerts:
    """All alert rules over the events of the daemon."""

    def __init__(self, rules: Sequence[AlertRule], dispatchers: Dispatchers) -> None:
        self._dispatchers = dispatchers
        self._rules = [_Rule(rule) for rule in rules]
        self._gpus: dict[str, Gpu] = {}
        """Every GPU listed so far, by its UUID: notices are also of those that are gone."""

    def reconfigure(self, rules: Sequence[AlertRule]) -> None:
        """Replace the rules; those that stay as they are remember what they sent."""
        known = {each.rule: each for each in self._rules}
        self._rules = [known.get(rule) or _Rule(rule) for rule in rules]
        self._dispatchers.keep(rules)

    def observe(
        self,
        events: Iterable[Event],
        gpus: Sequence[Gpu],
        time_s: float,
        now_s: float,
        left: Iterable[Event] = (),
    ) -> None:
        """Take in events that began or ended, and send the notices due; about once a second.

        `left` are those that a killed daemon left open, with the time at which they were seen last
        as their end. `time_s` is Unix time, as that of the events; durations are those of `now_s`,
        of a clock that nobody sets.
        """
        events, left = list(events), list(left)
        self._gpus |= {gpu.uuid: gpu for gpu in gpus}
        ever = tuple(self._gpus.values())
        for rule in self._rules:
            for event in left:
                rule.take_over(event, ever, time_s, now_s)
            for notice in rule.due(events, ever, time_s, now_s):
                self._dispatchers.send(rule.rule, notice)


class _Rule:
    """One rule with the notices that it has sent."""

    def __init__(self, rule: AlertRule) -> None:
        self.rule = rule
        self._lasting: dict[Identity, _Lasting] = {}
        self._sent_s: dict[Subject, float] = {}
        self._left: dict[Subject, tuple[Event, float]] = {}
        """What a killed daemon told of, and until when it may be seen to go on."""

    def take_over(self, event: Event, gpus: Sequence[Gpu], time_s: float, now_s: float) -> None:
        """Take in an event that a killed daemon left open. If it lasted for long enough, that one
        has told of it: so it is not told again where it goes on, but its end is."""
        ended_s = event.began_s if event.ended_s is None else event.ended_s
        if self._concerns(event, gpus) and ended_s - event.began_s >= self.rule.for_s:
            is_long_ago = time_s - ended_s >= self.rule.again_after_s
            self._left[_subject(event)] = event, now_s + (0.0 if is_long_ago else LEFT_S)

    def due(
        self, events: Iterable[Event], gpus: Sequence[Gpu], time_s: float, now_s: float
    ) -> list[Notice]:
        notices = list(self._lost_sight_of(gpus, now_s))
        for event in events:
            if self._concerns(event, gpus):
                since_s = now_s - max(time_s - event.began_s, 0.0)
                notices += self._take(event, gpus, since_s, now_s, is_end_seen(event, time_s))
        for lasting in self._lasting.values():
            if not lasting.is_settled and now_s - lasting.since_s >= self.rule.for_s:
                lasting.is_settled = True
                lasting.is_sent = self._may_send(lasting.event, now_s)
                if lasting.is_sent:
                    notices.append(self._notice("firing", lasting.event, gpus))
        return notices

    def _lost_sight_of(self, gpus: Sequence[Gpu], now_s: float) -> Iterator[Notice]:
        """Tell what a killed daemon left open and nobody has seen since."""
        for subject, (event, until_s) in list(self._left.items()):
            if now_s >= until_s:
                del self._left[subject]
                if self.rule.recovered:
                    yield replace(self._notice("recovered", event, gpus), is_end_seen=False)

    def _take(
        self, event: Event, gpus: Sequence[Gpu], since_s: float, now_s: float, is_seen: bool
    ) -> list[Notice]:
        if event.ended_s is None:
            is_told = self._left.pop(_subject(event), None) is not None
            if is_told:  # it goes on, under a daemon that knows no more than its store
                self._sent_s[_subject(event)] = now_s
            began = _Lasting(event, since_s, is_sent=is_told, is_settled=is_told)
            self._lasting.setdefault(event.identity, began).event = event
            return []
        lasting = self._lasting.pop(event.identity, None)
        if lasting is None:  # it never lasted, such as an Xid error, so `for` cannot hold it back
            may_send = self._may_send(event, now_s)
            return [self._notice("firing", event, gpus)] if may_send else []
        if not is_seen:  # it may hold on: then it begins anew, which is told however soon
            self._sent_s.pop(_subject(event), None)
        if lasting.is_sent and self.rule.recovered:
            return [replace(self._notice("recovered", event, gpus), is_end_seen=is_seen)]
        return []

    def _may_send(self, event: Event, now_s: float) -> bool:
        subject = _subject(event)
        last_s = self._sent_s.get(subject)
        if last_s is not None and now_s - last_s < self.rule.again_after_s:
            return False
        self._sent_s[subject] = now_s
        return True

    def _concerns(self, event: Event, gpus: Sequence[Gpu]) -> bool:
        rule = self.rule
        if rule.kinds and event.kind not in rule.kinds:
            return False
        if event.severity.rank < Severity(rule.severity).rank:
            return False
        if not rule.gpus:
            return True
        return event.gpu in rule.gpus or str(_index(event, gpus)) in rule.gpus

    def _notice(self, status: str, event: Event, gpus: Sequence[Gpu]) -> Notice:
        return Notice(self.rule.name, status, event, _index(event, gpus))


def _subject(event: Event) -> Subject:
    return event.kind, event.gpu, event.key


def _index(event: Event, gpus: Sequence[Gpu]) -> int | None:
    return next((gpu.index for gpu in gpus if gpu.uuid == event.gpu), None)
