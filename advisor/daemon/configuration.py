"""`gpuadvisor.toml`: how the daemon is told to behave; docs/daemon.md explains every key."""

from __future__ import annotations

import ipaddress
import os
import pkgutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuadvisor.daemon import detectors
from gpuadvisor.daemon.toml_values import (
    Keys,
    Wrong,
    one_of,
    some_of,
    text,
    texts,
    time_s,
    truth,
)
from gpuadvisor.domain.metrics import Pace
from gpuadvisor.domain.telemetry import Severity
from gpuadvisor.errors import UsageError

NAME = "gpuadvisor.toml"
SYSTEM_FILE = Path("/etc/gpuadvisor") / NAME
MAX_BYTES = 1 << 20
"""A configuration has some kilobytes. More is another file, which must not fill the memory."""

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 9465
"""Near OpenTelemetry's 9464, and free in Prometheus' list of default ports; dcgm-exporter has 9400
and node-exporter 9100."""
SLOWEST_FAST_S = 0.5
"""Twice a second: what is slower than that is what whole frames are for."""

KINDS = (
    *(module.name for module in pkgutil.iter_modules(detectors.__path__)),
    "sampler",
    "store",
    "xid",
)
"""The events that there are: of the detectors, of the collector, and of the daemon itself."""


@dataclass(frozen=True)
class Prometheus:
    """The endpoint for scrapes."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    token_file: str | None = None
    token_variable: str | None = None
    """Environment variable with the bearer token."""
    dcgm_names: bool = False
    processes: bool = False
    host_metrics: bool = True


@dataclass(frozen=True)
class AlertRule:
    """What is told to whom."""

    name: str
    kinds: tuple[str, ...] = ()
    """Empty: all."""
    severity: Severity = Severity.WARNING
    """At least this."""
    gpus: tuple[str, ...] = ()
    """Indices and UUIDs; empty: all, and what is about no GPU."""
    for_s: float = 0.0
    again_after_s: float = 3600.0
    recovered: bool = True
    command: tuple[str, ...] = ()
    webhook: str | None = None
    timeout_s: float = 10.0


@dataclass(frozen=True)
class Retention:
    """How long each resolution is kept, in seconds."""

    raw_s: float = 48 * 3600.0
    minutes_s: float = 90 * 86400.0


@dataclass(frozen=True)
class Configuration:
    """All of it."""

    path: Path | None = None
    """None where no file was found and everything is at its default."""
    fast_period_s: float | None = None
    log_level: str = "info"
    prometheus: Prometheus | None = None
    """None: no endpoint."""
    alerts: tuple[AlertRule, ...] = ()
    retention: Retention = Retention()


def read(given: Path | None) -> Configuration:
    """Return the configuration of this file, else of the first that exists, else the defaults."""
    path = given or next((each for each in _places() if each.is_file()), None)
    if path is None:
        return Configuration()
    root = Keys(path, "", _content(path))
    fast_period_s, log_level = _daemon(root.table("daemon"))
    configuration = Configuration(
        path.absolute(),
        fast_period_s,
        log_level,
        _prometheus(root.table("prometheus")),
        tuple(_alert(table, place) for place, table in enumerate(root.tables("alert"), 1)),
        _retention(root.table("retention")),
    )
    root.finish()
    return configuration


def _places() -> list[Path]:
    places = [SYSTEM_FILE]
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not Path(base).is_absolute():  # the specification has relative paths ignored
        base = str(Path(os.environ.get("HOME") or "/nonexistent") / ".config")
    return [Path(base) / "gpuadvisor" / NAME, *places]


def _content(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: the path holds a null byte
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read the configuration {path}: {reason}; check it.") from None
    if len(content) > MAX_BYTES:
        raise UsageError(f"{path} is not a configuration: it is larger than 1 MiB.")
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        # ValueError: not UTF-8, not TOML, or a number beyond Python's limit of digits.
        reason = str(error).splitlines()[0]
        raise UsageError(f"{path} is not valid TOML ({reason}): correct it.") from None


def _daemon(table: Keys | None) -> tuple[float | None, str]:
    if table is None:
        return None, Configuration.log_level
    fast = table.take("fast", truth, False)
    check = time_s(Pace.FAST.period_s, SLOWEST_FAST_S)
    period_s = table.take("fast_period", check, Pace.FAST.period_s)
    log_level = table.take("log_level", one_of("debug", "info", "warning", "error"), "info")
    table.finish()
    return period_s if fast else None, log_level


def _prometheus(table: Keys | None) -> Prometheus | None:
    if table is None:
        return None
    enabled = table.take("enabled", truth, True)
    host, port = table.take("address", address, (DEFAULT_HOST, DEFAULT_PORT))
    made = Prometheus(
        host,
        port,
        table.take("token_file", text, None),
        table.take("token_variable", text, None),
        table.take("dcgm_names", truth, False),
        table.take("processes", truth, False),
        table.take("host_metrics", truth, True),
    )
    table.finish()
    if made.token_file and made.token_variable:
        raise table.wrong("token_file", "and `token_variable` exclude each other; keep one")
    return made if enabled else None


def address(value: Any) -> tuple[str, int]:
    """Return host and port of `host:port`, `:port` (loopback) or `[::1]:port`."""
    allowed = Wrong(f'"address:port", such as "{DEFAULT_HOST}:{DEFAULT_PORT}"')
    if not isinstance(value, str):
        raise allowed
    host, colon, port = value.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or not 0 <= int(port[:6]) < 1 << 16:
        raise allowed
    host = host.removeprefix("[").removesuffix("]") or DEFAULT_HOST
    if host == "localhost":
        host = DEFAULT_HOST
    try:
        return str(ipaddress.ip_address(host)), int(port)
    except ValueError:
        raise allowed from None


def _retention(table: Keys | None) -> Retention:
    if table is None:
        return Retention()
    made = Retention(
        table.take("raw", time_s(3600.0), Retention.raw_s),
        table.take("minutes", time_s(86400.0), Retention.minutes_s),
    )
    table.finish()
    return made


def _alert(table: Keys, place: int) -> AlertRule:
    severities = [str(each) for each in Severity]
    rule = AlertRule(
        table.take("name", text, f"alert {place}"),
        table.take("kinds", some_of(*KINDS), ()),
        Severity(table.take("severity", one_of(*severities), "warning")),
        table.take("gpus", _gpus, ()),
        table.take("for", time_s(0.0), 0.0),
        table.take("again_after", time_s(0.0), 3600.0),
        table.take("recovered", truth, True),
        table.take("command", texts, ()),
        table.take("webhook", _webhook, None),
        table.take("timeout", time_s(0.1, 600.0), 10.0),
    )
    table.finish()
    if bool(rule.command) == bool(rule.webhook):
        raise table.wrong("command", "or `webhook` is needed, one of the two")
    return rule


def _gpus(value: Any) -> tuple[str, ...]:
    plain = isinstance(value, list) and all(
        isinstance(v, str) or (type(v) is int and 0 <= v < 1 << 16) for v in value
    )
    if not plain or not value:
        raise Wrong('an array of GPU numbers or UUIDs, such as [0, "GPU-..."]')
    return tuple(str(each) for each in value)


def _webhook(value: Any) -> str:
    if not isinstance(value, str) or not _is_web_address(value):
        raise Wrong("an address that begins with https:// or http://")
    return value


def _is_web_address(value: str) -> bool:
    from urllib.parse import urlsplit

    if not value.isascii() or not value.isprintable() or " " in value:
        return False
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an address that is none
        return False
