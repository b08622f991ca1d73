"""systemd: the unit file of the daemon, for the system or for one user, and sd_notify(3)."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from gpuadvisor.errors import AdvisorError
from gpuadvisor.storage.home import HOME_VARIABLE

UNIT = "gpuadvisor.service"
SYSTEM_FOLDER = Path("/etc/systemd/system")
SYSTEM_STORE = "/var/lib/gpuadvisor"
RUNNING = Path("/run/systemd/system")
"""A folder that exists where systemd is the init system (sd_booted(3))."""
WATCHDOG_S = 60
"""The daemon reports every second; a disk may keep one commit for half a minute."""

SERVICE = """\
[Unit]
Description=gpuadvisor: telemetry of this machine's GPUs
Documentation=https://pypi.org/project/gpuadvisor/
{after}

[Service]
Type=notify
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=5
WatchdogSec={watchdog_s}
TimeoutStopSec=60
{environment}
# Another's work on this machine comes first.
Nice=5
# No PrivateDevices and no DevicePolicy: NVML needs /dev/nvidia*, whose number systemd cannot know
# before the driver is loaded. No PrivateNetwork: the endpoint and webhooks need it. No
# RestrictSUIDSGID: the store's folder hands its group on to its files (set-group-ID).
{hardening}

[Install]
WantedBy={target}
"""

SYSTEM_HARDENING = """\
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
ProtectControlGroups=yes
ProtectKernelTunables=yes
ProtectHostname=yes
ProtectClock=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
UMask=0022"""
USER_HARDENING = """\
LockPersonality=yes
RestrictRealtime=yes
SystemCallArchitectures=native"""
SOCKET_VARIABLE = "NOTIFY_SOCKET"


def unit(*, system: bool, options: list[str]) -> str:
    """Return the unit's text; `options` are those of `daemon run`."""
    words = [sys.executable, "-P", "-m", "gpuadvisor", "daemon", "run", "--wait-for-gpu", *options]
    store = os.environ.get(HOME_VARIABLE)
    lines = []
    if system:
        store = store or SYSTEM_STORE
        lines.append("RuntimeDirectory=gpuadvisor")
        if store == SYSTEM_STORE:
            lines += ["StateDirectory=gpuadvisor", "StateDirectoryMode=0710"]
        else:
            lines.append(f"ReadWritePaths={_quoted(store)}")
    if store:
        lines.append(f"Environment={_quoted(f'{HOME_VARIABLE}={store}')}")
    return SERVICE.format(
        after="After=nvidia-persistenced.service" if system else "",
        command=" ".join(map(_quoted, words)),
        watchdog_s=WATCHDOG_S,
        environment="\n".join(lines),
        hardening=SYSTEM_HARDENING if system else USER_HARDENING,
        target="multi-user.target" if system else "default.target",
    )


def path(*, system: bool) -> Path:
    """Return the path of the unit file."""
    if system:
        return SYSTEM_FOLDER / UNIT
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if Path(base).is_absolute() else Path("~/.config").expanduser()
    return folder / "systemd" / "user" / UNIT


def install(*, system: bool, options: list[str]) -> Path:
    """Write the unit and return its path; AdvisorError where there is no systemd or no right."""
    if not RUNNING.is_dir():
        raise AdvisorError(
            "systemd does not run here (as in most containers): `gpuadvisor daemon start` begins"
            " the daemon without it, and `gpuadvisor daemon install --print` shows the unit."
        )
    where = path(system=system)
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(unit(system=system, options=options), "utf-8")
    except OSError as error:
        raise AdvisorError(
            f"{where} cannot be written ({error.strerror}): use sudo for --system, or --user."
        ) from None
    return where


def remove(where: Path) -> None:
    """Delete the unit file; AdvisorError without the right."""
    try:
        where.unlink()
    except OSError as error:
        raise AdvisorError(f"{where} cannot be removed ({error.strerror}): use sudo.") from None


def commands(*, system: bool) -> tuple[str, str]:
    """Return what makes systemd see the unit, and what starts it now and at every boot."""
    systemctl = "sudo systemctl" if system else "systemctl --user"
    return f"{systemctl} daemon-reload", f"{systemctl} enable --now {UNIT}"


def _quoted(word: str) -> str:
    """Return a word as units have it (systemd.syntax(7), and % of specifiers doubled)."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if plain != word or not word or set(word) & set(" \t'") else word


class Notifier:
    """Sends states to systemd, or to `gpuadvisor daemon start`; silent where nobody listens."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        address = environ.get(SOCKET_VARIABLE, "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._has_watchdog = for_us and "WATCHDOG_USEC" in environ

    def remark(self, sentence: str) -> None:
        """Say what is odd before it is ready; `ready` replaces it."""
        self._send(f"STATUS={sentence}")

    def ready(self, status: str) -> None:
        line = " ".join(status.split())
        self._send(f"READY=1\nMAINPID={os.getpid()}\nSTATUS={line}")

    def reloading(self) -> None:
        """Tell systemd that the configuration is read again; `ready` ends that state."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Tell systemd's watchdog that the daemon is alive."""
        if self._has_watchdog:
            self._send("WATCHDOG=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),  # it has gone, and we go on
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel,
        ):
            channel.setblocking(False)
            channel.sendto(state.encode(), self._address)
