"""`gpuadvisor.toml`: how the daemon is told to behave; docs/daemon.md explains every key.

The tables of the file are msgspec structs, whose field types check the values; what is wrong
becomes one sentence with the way out.
"""

from __future__ import annotations

import grp
import ipaddress
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import msgspec

from gpuadvisor.domain.metrics import SamplingInterval
from gpuadvisor.errors import UsageError
from gpuadvisor.printable import brief, printable
from gpuadvisor.rules.conditions import Findings
from gpuadvisor.rules.registry import load_events

NAME = "gpuadvisor.toml"
SYSTEM_FILE = Path("/etc/gpuadvisor") / NAME
MAX_BYTES = 1 << 20
"""A configuration has some kilobytes. More is another file, which must not fill the memory."""

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
LogLevel = Literal["debug", "info", "warning", "error"]
CommandLines = Literal["full", "script", "program", "hash", "none"]
EventSeverity = Literal["info", "warning", "error"]
"""The severities that events have."""


class Wrong(ValueError):  # noqa: N818 - what is allowed, for the sentence
    """A value is none of what is allowed, which this says in words."""


# Types of values, each with what it allows. -----------------------------------------------------


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


# Tables of the file. ----------------------------------------------------------------------------


class _Table(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename=lambda name: name.removesuffix("_s"),
):
    """A table, whose keys are the fields without the unit at their end."""


class _Daemon(_Table, frozen=True):
    fast: bool = False
    fast_period_s: FastPeriod = FastPeriod(SamplingInterval.FAST.period_s)
    log_level: LogLevel = "info"
    group: Group | None = None
    admin_group: Group | None = None


class Prometheus(_Table, frozen=True):
    """The endpoint for scrapes."""

    address: Address = Address(DEFAULT_ADDRESS)
    token_file: Text | None = None
    token_variable: Text | None = None
    """The name of an environment variable with the bearer token."""
    dcgm_names: bool = False
    processes: bool = False
    host_metrics: bool = True
    enabled: bool = True


class AlertRule(_Table, frozen=True):
    """Which events are sent to one receiver, and when."""

    name: Text = Text()
    """The rule's name for the log; `alert 1` and so on where the file has none."""
    kinds: Kinds = Kinds()
    """Kinds of events that are sent; empty: all."""
    severity: EventSeverity = "warning"
    """The least severity that is sent."""
    gpus: Gpus = Gpus()
    """Indices and UUIDs of GPUs; empty: all, and events that concern no GPU."""
    for_s: Seconds = Seconds(0.0)
    again_after_s: Seconds = Seconds(3600.0)
    recovered: bool = True
    command: Texts = Texts()
    webhook: Webhook | None = None
    timeout_s: Timeout = Timeout(10.0)


class Retention(_Table, frozen=True):
    """What is kept: how long each resolution, in seconds, and how much of a command line."""

    raw_s: HourOrMore = HourOrMore(48 * 3600.0)
    minutes_s: DayOrMore = DayOrMore(90 * 86400.0)
    command_lines: CommandLines = "full"
    """What is stored of the command lines of processes: all, up to the script, the first word, a
    hash that tells equal ones, or nothing."""


class Jobs(_Table, frozen=True):
    """What of jobs is told to whom."""

    others: bool = False
    """Whether members of the group see other users' jobs, without their arguments."""
    profile: bool = False
    """Whether a job that wastes its GPU is profiled, once, if its script called
    `gpuadvisor.profile_on_demand()`."""
    digest: Webhook | None = None
    """A webhook that gets the digest."""
    digest_every_s: DayOrMore = DayOrMore(7 * 86400.0)


class HostTable(_Table, frozen=True):
    """Another machine for `watch --host`."""

    name: Text = Text()
    """As it is called there; the address where the file has none."""
    address: Text = Text()
    """As `--host` takes it: `node7`, `node7:9465` or `https://node7.example.org`."""
    token_file: Text | None = None
    token_variable: Text | None = None
    ca_file: Text | None = None
    """Whom to trust over https, in PEM; None: whom this machine trusts."""


class _File(_Table, frozen=True):
    daemon: _Daemon = _Daemon()
    prometheus: Prometheus | None = None
    alert: tuple[AlertRule, ...] = ()
    host: tuple[HostTable, ...] = ()
    retention: Retention = Retention()
    jobs: Jobs = Jobs()


class Configuration(msgspec.Struct, frozen=True):
    """All settings of the daemon."""

    path: Path | None = None
    """The file; None where none was found and everything is at its default."""
    fast_period_s: float | None = None
    """The period of fast frames; None: there are only full ones."""
    log_level: LogLevel = "info"
    group: Group | None = None
    """The group that may read telemetry; None: the daemon's own."""
    admin_group: Group | None = None
    """The group that may see all command lines; None: only root and the daemon's user."""
    prometheus: Prometheus | None = None
    """The endpoint for scrapes; None: there is none."""
    alerts: tuple[AlertRule, ...] = ()
    retention: Retention = Retention()
    jobs: Jobs = Jobs()
    hosts: tuple[HostTable, ...] = ()


# Reading. ---------------------------------------------------------------------------------------


def read(given: Path | None) -> Configuration:
    """Return the configuration of this file, else of the first that exists, else the defaults."""
    path = given or next((each for each in _places() if each.is_file()), None)
    if path is None:
        return Configuration()
    content = _content(path)
    try:
        file = msgspec.convert(content, _File, dec_hook=lambda kind, value: kind.read(value))
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {_sentence(error, content)}.") from None
    endpoint = file.prometheus
    asking = [("prometheus", endpoint), *((f"host[{n}]", h) for n, h in enumerate(file.host, 1))]
    for name, table in asking:
        if table and table.token_file and table.token_variable:
            problem = "and `token_variable` exclude each other; keep one"
            raise UsageError(f"{path}: `{name}.token_file` {problem}.")
    for place, each in enumerate(file.host, 1):
        if not each.address:
            raise UsageError(f'{path}: `host[{place}].address` is needed, such as "node7:9465".')
    for place, rule in enumerate(file.alert, 1):
        if bool(rule.command) == bool(rule.webhook):
            problem = "or `webhook` is needed, one of the two"
            raise UsageError(f"{path}: `alert[{place}].command` {problem}.")
    return Configuration(
        path.absolute(),
        file.daemon.fast_period_s if file.daemon.fast else None,
        file.daemon.log_level,
        file.daemon.group,
        file.daemon.admin_group,
        endpoint if endpoint and endpoint.enabled else None,
        tuple(
            rule if rule.name else msgspec.structs.replace(rule, name=Text(f"alert {place}"))
            for place, rule in enumerate(file.alert, 1)
        ),
        file.retention,
        file.jobs,
        file.host,
    )


def _places() -> list[Path]:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not Path(base).is_absolute():  # the specification has relative paths ignored
        base = str(Path(os.environ.get("HOME") or "/nonexistent") / ".config")
    return [Path(base) / "gpuadvisor" / NAME, SYSTEM_FILE]


def _content(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: the path holds a null byte
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read the configuration {path}: {reason}; check it.") from None
    if len(content) > MAX_BYTES:
        raise UsageError(f"{path} is not a configuration: it is larger than 1 MiB.")
    import tomllib

    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        # ValueError: not UTF-8, not TOML, or a number beyond Python's limit of digits.
        reason = str(error).splitlines()[0]
        raise UsageError(f"{path} is not valid TOML ({reason}): correct it.") from None


def _sentence(error: msgspec.ValidationError, content: Any) -> str:
    """Return what is wrong with which key, from msgspec's own words and the place in them."""
    if str(error).startswith("Object contains unknown field"):
        return _unknown_key(content)
    place = re.search(r" - at `\$((?:\.\w+|\[\d+\])+)`\Z", str(error))
    assert place, error
    steps = re.findall(r"\.(\w+)|\[(\d+)\]", place[1])
    while steps[-1][1]:  # a member is named by its array
        steps.pop()
    value = content
    for key, index in steps:
        value = value[key or int(index)]
    parts = (f".{key}" if key else f"[{int(index) + 1}]" for key, index in steps)
    name, key = "".join(parts).removeprefix("."), steps[-1][0]
    if isinstance(error.__cause__, Wrong):
        allowed = str(error.__cause__)
    elif len(steps) == 1:
        several = key in ("alert", "host")
        allowed = f"tables, each headed [[{key}]]" if several else f"a table, headed [{key}]"
    else:
        allowed = _WORDS.get(key, "true or false")
    return f"`{name}` must be {allowed}, not {brief(value)}"


def _unknown_key(content: dict[str, Any]) -> str:
    """Return the sentence for the first key that is in no table of ours."""
    sections: dict[str, type[_Table]] = {
        "daemon": _Daemon,
        "prometheus": Prometheus,
        "retention": Retention,
        "jobs": Jobs,
    }
    found: list[tuple[str, Any, type[_Table]]] = [
        ("", content, _File),
        *((f"{name}.", content.get(name), kind) for name, kind in sections.items()),
    ]
    several: tuple[tuple[str, type[_Table]], ...] = (("alert", AlertRule), ("host", HostTable))
    for name, kind in several:
        tables = content.get(name)
        for place, table in enumerate(tables if isinstance(tables, list) else (), 1):
            found.append((f"{name}[{place}].", table, kind))
    for prefix, table, kind in found:
        known = kind.__struct_encode_fields__
        for key in table if isinstance(table, dict) else ():
            if key not in known:
                return f"`{printable(prefix + key)}` is not a key here; {nearest(key, known)}"
    raise AssertionError(content)


_WORDS = {
    key: "one of " + ", ".join(f'"{each}"' for each in get_args(kind))
    for key, kind in (
        ("log_level", LogLevel),
        ("severity", EventSeverity),
        ("command_lines", CommandLines),
    )
}
"""The values that are allowed for a key, in words; elsewhere they are true and false."""


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
