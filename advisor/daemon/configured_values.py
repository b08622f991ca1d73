"""Types of the values that a configuration has, each with what it allows.

Their `read` takes what the file or the command line says, and raises `Wrong` with what is allowed.
"""

from __future__ import annotations

import grp
import ipaddress
import math
import re
from collections.abc import Iterable
from typing import ClassVar, Self

from gpuadvisor.domain.metrics import SamplingInterval
from gpuadvisor.rules.conditions import Findings
from gpuadvisor.rules.registry import load_events

DEFAULT_HOST = "127.0.0.1"
DEFAULT_ADDRESS = f"{DEFAULT_HOST}:9465"
"""Near OpenTelemetry's 9464, and free in Prometheus' list of default ports; dcgm-exporter has 9400
and node-exporter 9100."""

KINDS = (
    *sorted({Findings.kind, *(kind for each in load_events() for kind in each.kinds)}),
    "sampler",
    "store",
    "xid",
)
"""The events that there are: of conditions, of the collector, and of the daemon itself."""

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_S = 100 * 365 * 86400.0
"""A century stands for ever, and no time overflows that is added to today's."""


class Wrong(ValueError):  # noqa: N818 - what is allowed, for the sentence
    """A value is none of what is allowed, which this says in words."""


class Text(str):
    """Text that is not empty."""

    @classmethod
    def read(cls, value: object) -> Self:
        if not isinstance(value, str) or not value or "\0" in value:
            raise Wrong("text in quotes")
        return cls(value)


class Texts(tuple[str, ...]):
    """An array of texts that is not empty, such as a command."""

    @classmethod
    def read(cls, value: object) -> Self:
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            raise Wrong("an array of texts in quotes")
        if any("\0" in each for each in value):
            raise Wrong("an array of texts without null characters")
        return cls(value)


class Kinds(Texts):
    """An array of kinds of events."""

    @classmethod
    def read(cls, value: object) -> Self:
        kinds = super().read(value)
        for each in kinds:
            if each not in KINDS:
                raise Wrong(f'an array of event kinds ("{each}" is none: {nearest(each, KINDS)})')
        return kinds


class Gpus(tuple[str, ...]):
    """An array of indices and UUIDs of GPUs that is not empty."""

    @classmethod
    def read(cls, value: object) -> Self:
        plain = isinstance(value, list) and all(
            isinstance(v, str) or (type(v) is int and 0 <= v < 1 << 16) for v in value
        )
        if not plain or not value:
            raise Wrong('an array of GPU numbers or UUIDs, such as [0, "GPU-..."]')
        assert isinstance(value, list)
        return cls(str(each) for each in value)


class Group(str):
    """The name of a group of users."""

    @property
    def number(self) -> int:
        """Its number on this machine; KeyError where it has gone meanwhile."""
        return grp.getgrnam(self).gr_gid

    @classmethod
    def read(cls, value: object) -> Self:
        try:
            grp.getgrnam(Text.read(value))
        except (KeyError, ValueError):
            raise Wrong(
                "the name of a group of this machine, as `getent group` lists them"
            ) from None
        return cls(value)


class Webhook(str):
    """The address of a webhook."""

    @classmethod
    def read(cls, value: object) -> Self:
        if not isinstance(value, str) or not _is_web_address(value):
            raise Wrong("an address that begins with https:// or http://")
        return cls(value)


class Address(str):
    """The endpoint's `host:port`, the host a number; also read from `:port` and `[::1]:port`."""

    @property
    def host(self) -> str:
        """The IPv4 or IPv6 address, without brackets."""
        return self.rpartition(":")[0]

    @property
    def port(self) -> int:
        """The TCP port; 0 lets the kernel choose."""
        return int(self.rpartition(":")[2])

    @classmethod
    def read(cls, value: object) -> Self:
        allowed = Wrong(f'"address:port", such as "{DEFAULT_ADDRESS}"')
        if not isinstance(value, str):
            raise allowed
        host, colon, port = value.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()) or int(port[:6]) >= 1 << 16:
            raise allowed
        host = host.removeprefix("[").removesuffix("]") or DEFAULT_HOST
        if host == "localhost":
            host = DEFAULT_HOST
        try:
            return cls(f"{ipaddress.ip_address(host)}:{int(port)}")
        except ValueError:
            raise allowed from None


class Seconds(float):
    """A time in seconds, written as a number or such as `"30s"`."""

    lowest_s: ClassVar = 0.0
    highest_s: ClassVar = LONGEST_S

    @classmethod
    def read(cls, value: object) -> Self:
        seconds = _seconds(value)
        if seconds is None or not cls.lowest_s <= seconds <= cls.highest_s:
            limit = "" if cls.highest_s == LONGEST_S else f" to {_time(cls.highest_s)}"
            raise Wrong(f'a time from {_time(cls.lowest_s)}{limit}, such as "30s" or "1h"')
        return cls(seconds)


class SecondOrMore(Seconds):
    """A time of at least one second."""

    lowest_s = 1.0


class HourOrMore(Seconds):
    """A time of at least one hour."""

    lowest_s = 3600.0


class DayOrMore(Seconds):
    """A time of at least one day."""

    lowest_s = 86400.0


class FastPeriod(Seconds):
    """The period of fast frames: what is slower than twice a second is left to full frames."""

    lowest_s, highest_s = SamplingInterval.FAST.period_s, 0.5


class Timeout(Seconds):
    """How long a command or a webhook may take."""

    lowest_s, highest_s = 0.1, 600.0


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return `did you mean ...` or, where nothing is near, what there is."""
    from difflib import get_close_matches

    allowed = sorted(allowed)
    close = get_close_matches(word, allowed, n=1)
    if close:
        return f"did you mean `{close[0]}`"
    return "there are " + ", ".join(f"`{each}`" for each in allowed)


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value) if math.isfinite(value) else None
        except OverflowError:
            return None
    parts = (
        re.fullmatch(r"(\d{1,12}(?:\.\d{1,12})?) ?([a-z]+)", value, re.ASCII)
        if isinstance(value, str)
        else None
    )
    if parts is None or parts[2] not in UNITS_S:
        return None
    return float(parts[1]) * UNITS_S[parts[2]]


def _time(seconds: float) -> str:
    if seconds < 1 and seconds:
        return f"{seconds * 1000:g}ms"
    for unit in ("d", "h", "m"):
        if seconds and seconds % UNITS_S[unit] == 0:
            return f"{seconds / UNITS_S[unit]:g}{unit}"
    return f"{seconds:g}s"


def _is_web_address(value: str) -> bool:
    from urllib.parse import urlsplit

    if not value.isascii() or not value.isprintable() or " " in value:
        return False
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an address that is none
        return False
