"""Several machines without a screen: all of them once, or an object each second."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO

from gpuadvisor.daemon.endpoint.client import RemoteError
from gpuadvisor.daemon.endpoint.hosts import Host
from gpuadvisor.domain.moment import Moment
from gpuadvisor.tui.watch import hosts, plain, table, then
from gpuadvisor.tui.watch.feed import Feed
from gpuadvisor.tui.watch.watched import Watched

EVERY_S = 1.0
"""Seconds between two lines of JSON."""


def moments(chosen: Sequence[Host], at_s: float) -> list[tuple[Host, Moment | str]]:
    """Ask all at once what was at a Unix time: of each that, or a sentence why it does not tell."""
    from gpuadvisor.daemon.endpoint.remote_past import RemotePast

    told: dict[int, Moment | str] = {}

    def ask(place: int, host: Host) -> None:
        try:
            told[place] = RemotePast(host).moment(at_s)
        except RemoteError as error:
            told[place] = str(error)

    _each_in_a_thread(ask, list(enumerate(chosen)))
    return [(host, told[place]) for place, host in enumerate(chosen)]


def moments_lines(
    told: Sequence[tuple[Host, Moment | str]], width: int, now_s: float
) -> Iterator[str]:
    """Yield what was on each machine."""
    for place, (host, found) in enumerate(told):
        if place:
            yield ""
        if isinstance(found, str):
            yield f"{host.name}: {found}"
        else:
            yield f"{host.name}:"
            yield from then.printed(found, width, now_s, is_current=True)


def moments_document(told: Sequence[tuple[Host, Moment | str]], at_s: float) -> dict[str, Any]:
    """Return what was on each machine as an object for programs."""
    hosts = [
        {"name": host.name, "address": host.place, "answers": not isinstance(found, str)}
        | ({"problem": found} if isinstance(found, str) else then.document(found))
        for host, found in told
    ]
    return {"version": plain.VERSION, "time_s": at_s, "hosts": hosts}


def _each_in_a_thread(do: Callable[..., None], arguments: Iterable[tuple[Any, ...]]) -> None:
    threads = [threading.Thread(target=do, args=each, daemon=True) for each in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def once(watched: Sequence[Watched]) -> bool:
    """Ask all at once, and return whether each has values of now; takes as long as the slowest."""

    def ask(each: Watched) -> None:
        assert each.remote is not None
        for frame in each.remote.ask():
            each.state.update(frame)
        each.state.withheld = each.remote.withheld

    _each_in_a_thread(ask, [(each,) for each in watched])
    return all(hosts.problem(each) is None for each in watched)


def lines(watched: Sequence[Watched], width: int) -> Iterator[str]:
    """Yield a line for each machine, those in trouble first, and then all of each; of one that was
    never heard a sentence alone, and once."""
    listed = hosts.ordered(watched)
    told: list[str] = []
    if len(listed) > 1:
        name_width = max(len(each.state.host) for each in listed)
        told = [table.text_of(hosts.line(each, width, name_width)) for each in listed]
        yield from told
    for each in listed:
        problem = None if each.state.gpus else hosts.problem(each)
        if problem is not None and any(problem in line for line in told):
            continue
        if len(listed) > 1:
            yield ""
        if problem is not None:
            yield f"{each.state.host}: {problem}"
            continue
        if each.remote and each.remote.remark:
            yield each.remote.remark
        yield from plain.table(each.state, width)


def document(watched: Sequence[Watched]) -> dict[str, Any]:
    """Return what is known of all machines, in the order in which they were named."""
    return {"version": plain.VERSION, "time_s": time.time(), "hosts": [*map(_host, watched)]}


def _host(each: Watched) -> dict[str, Any]:
    assert each.remote is not None
    asked, now_s, silent_s = each.remote, time.time(), each.remote.silent_s
    events = each.state.log.recent(each.state.now_s)
    return {
        "name": asked.host.name,
        "address": asked.host.place,
        "answers": asked.is_heard,
        "heard_s": None if silent_s is None else now_s - silent_s,
        "clock_ahead_s": asked.ahead_s,
        **plain.document(each.state, events),
        "problem": hosts.problem(each),
    }


def stream(watched: Sequence[Watched], out: TextIO) -> None:
    """Write a line of JSON about all of them each second, for ever."""
    feeds = [Feed(each.source) for each in watched]
    for feed in feeds:
        feed.start()
    while True:
        time.sleep(EVERY_S)
        for each, feed in zip(watched, feeds, strict=True):
            for frame in feed.waiting(EVERY_S):
                each.state.update(frame)
        print(json.dumps(document(watched)), file=out, flush=True)
