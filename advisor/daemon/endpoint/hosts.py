"""Which machines `watch --host` asks: by names of the configuration or addresses, and tokens."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from gpuadvisor.daemon.configuration import HostTable
from gpuadvisor.daemon.endpoint.tokens import read_token
from gpuadvisor.errors import UsageError
from gpuadvisor.printable import brief, printable

PORT, TLS_PORT = 9465, 443
"""The daemon's own, and that of a proxy with TLS."""
METRICS = "/metrics"
"""What the address ends in that Prometheus asks, and that somebody may paste: it is left out."""
TOKEN_VARIABLE = "GPUADVISOR_TOKEN"
"""Holds the token for all hosts that have none of their own."""


@dataclass(frozen=True)
class Host:
    """A daemon's endpoint on another machine."""

    name: str
    """As it is called here."""
    address: str
    """Name or number, without brackets."""
    port: int = PORT
    is_tls: bool = False
    path: str = ""
    """What comes before `/watch`, without a slash at its end."""
    token_file: str | None = None
    token_variable: str | None = None
    ca_file: str | None = None

    @property
    def place(self) -> str:
        """The address with its port, for sentences."""
        name = f"[{self.address}]" if ":" in self.address else self.address
        return f"{name}:{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether nothing goes over a network."""
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return self.address == "localhost"

    @property
    def token_words(self) -> str:
        """Where its token stands, for sentences."""
        if self.token_file:
            return f"in {printable(self.token_file)}"
        return f"in the environment variable {printable(self.token_variable or TOKEN_VARIABLE)}"

    def token(self) -> str | None:
        """Return the token as it stands there now; None where it has none.

        UsageError where it cannot be read, or cannot be a token.
        """
        token = read_token(self.token_file, self.token_variable)
        if token is None:
            return None
        if not token.isascii() or not token.decode("ascii").isprintable():
            raise UsageError(
                f"The token {self.token_words} is none: it may hold only printable ASCII"
                " characters, on one line."
            )
        return token.decode("ascii")


def chosen(
    asked: str, configured: Sequence[HostTable], token_file: Path | None = None
) -> list[Host]:
    """Return the hosts that are asked for, separated by commas; empty: all that are configured.

    `token_file`, else the environment, holds the token of those that name none. UsageError where
    one cannot be, and for a token that cannot be read.
    """
    by_name = {str(each.name or each.address): each for each in configured}
    words = [word for word in asked.split(",") if word.strip()] if asked else list(by_name)
    if not words:
        raise UsageError(
            "--host without names takes those of the configuration, which has none: name them"
            " (--host node7,node8), or add [[host]] tables with an `address` to gpuadvisor.toml"
        )
    found: dict[tuple[object, ...], Host] = {}
    for word in map(str.strip, words):
        table = by_name.get(word)
        host = _configured(table) if table else _parsed(word)
        if host.token_file is None and host.token_variable is None:
            host = _with_default_token(host, token_file)
        host.token()  # a file that is missing is said now
        found.setdefault((host.address, host.port, host.path), host)
    return list(found.values())


def warnings(hosts: Iterable[Host]) -> list[str]:
    """Return what is unsafe about how these are asked, in a sentence each."""
    open_ = [h.name for h in hosts if not h.is_tls and not h.is_here and h.token() is not None]
    if not open_:
        return []
    return [
        f"the token goes to {', '.join(open_)} unencrypted, where others on the network can read"
        " it: put TLS in front of the daemon, and name it https://..."
    ]


def _with_default_token(host: Host, file: Path | None) -> Host:
    if file is not None:
        return replace(host, token_file=str(file))
    if os.environ.get(TOKEN_VARIABLE, "").strip():
        return replace(host, token_variable=TOKEN_VARIABLE)
    return host


def _configured(table: HostTable) -> Host:
    host = _parsed(str(table.address))
    return replace(
        host,
        name=str(table.name) or host.name,
        token_file=table.token_file,
        token_variable=table.token_variable,
        ca_file=table.ca_file,
    )


def _parsed(word: str) -> Host:
    wrong = UsageError(
        f"{brief(word)} is no host: name one as node7, node7:9465, [::1]:9465 or"
        " https://node7.example.org"
    )
    has_scheme = "://" in word
    try:
        parts = urlsplit(word if has_scheme else f"//{word}")
        port, address = parts.port, parts.hostname
    except ValueError:
        raise wrong from None
    if "@" in parts.netloc:
        raise UsageError(
            "a token or password does not belong on the command line, where other users see it:"
            f" put it into a file (--token-file), or the environment ({TOKEN_VARIABLE})"
        )
    is_odd = not word.isascii() or not word.isprintable() or " " in word
    if is_odd or not address or port == 0 or parts.query or parts.fragment:
        raise wrong
    if parts.scheme not in (("http", "https") if has_scheme else ("",)):
        raise wrong
    is_tls, path = parts.scheme == "https", parts.path.rstrip("/").removesuffix(METRICS)
    if port is None:
        port = TLS_PORT if is_tls else PORT
    name = parts.netloc.removesuffix(f":{TLS_PORT if is_tls else PORT}") + path
    return Host(name, address, port, is_tls, path)
