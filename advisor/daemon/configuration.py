"""`gpuadvisor.toml`: how the daemon is told to behave; docs/daemon.md explains every key.

The tables of the file are msgspec structs, whose field types check the values; what is wrong
becomes one sentence with the way out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from gpuadvisor.daemon.configured_values import (
    DEFAULT_ADDRESS,
    Address,
    DayOrMore,
    FastPeriod,
    Gpus,
    Group,
    HourOrMore,
    Kinds,
    Seconds,
    Text,
    Texts,
    Timeout,
    Webhook,
    Wrong,
    nearest,
)
from gpuadvisor.domain.metrics import SamplingInterval
from gpuadvisor.errors import UsageError
from gpuadvisor.printable import brief, printable
from gpuadvisor.toml_file import read_toml

NAME = "gpuadvisor.toml"
SYSTEM_FILE = Path("/etc/gpuadvisor") / NAME

LogLevel = Literal["debug", "info", "warning", "error"]
CommandLines = Literal["full", "script", "program", "hash", "none"]
EventSeverity = Literal["info", "warning", "error"]
"""The severities that events have."""


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
    content = read_toml(path, "the configuration")
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
