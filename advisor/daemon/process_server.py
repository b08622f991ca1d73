"""The daemon's Unix socket: tells other users of this machine which processes were on its GPUs.

Who asks is what the kernel says (SO_PEERCRED). Users see the command lines of their own processes;
root, the daemon's user and the members of one group see all.
"""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from gpuadvisor.daemon.bounded_server import REQUEST_S, BoundedServer
from gpuadvisor.daemon.configured_values import Group
from gpuadvisor.errors import StoreError
from gpuadvisor.storage.locks import peer_of, user_name
from gpuadvisor.storage.telemetry.files import DAY_S, day_begin
from gpuadvisor.storage.telemetry.jobs import JobsAnswer, hidden_use, stored_uses
from gpuadvisor.storage.telemetry.listed_processes import (
    SOCKET,
    Answer,
    Question,
    listed,
    short_address,
)
from gpuadvisor.storage.telemetry.schema import PROCESS_COLUMNS, PROGRAM_COLUMNS

CLIENTS = 4
"""Clients that are served at once; an answer takes the daemon some 10 ms and 1 MB."""
QUESTION_BYTES = 1024
"""The longest question; ours have less than 100."""
SOCKET_MODE = 0o660
"""Connecting takes the right to write: for the owner and the group of the store."""
SHOWN = ("hidepid=0", "hidepid=off")
NOBODY = 65534
"""The user that the kernel shows for all whom it cannot name (overflowuid, user_namespaces(7)):
it owns nothing here, as it is several."""
SO_PEERGROUPS = 59
"""Option of Linux (asm-generic/socket.h) for all groups of the other end; Python does not name it.
"""
GROUPS_BYTES = 1024
"""What Python's getsockopt can take: 256 groups. Of a user in more, only the first one counts."""
ALWAYS_SHOWN = {"pid", "kind", "is_host_pid", "memory_bytes", "sm_utilization_pct"}
"""What of others' processes is told where the machine hides them, as nvidia-smi does."""
RUNTIME_VARIABLE = "RUNTIME_DIRECTORY"
"""Where systemd says which folders in /run are the service's (systemd.exec(5))."""


class ProcessServer:
    """The socket of a store, open until `close`; OSError where it cannot be opened."""

    def __init__(
        self, folder: Path, group: int, admins: Group | None, shows_jobs: bool = False
    ) -> None:
        """Let members of a group (its number) ask; those of `admins` are told everything. With
        `shows_jobs` all are told of others' jobs, without command lines."""
        self._path = folder / SOCKET
        self._path.unlink(missing_ok=True)  # that of a daemon that was killed
        where = self._path
        if runtime := os.environ.get(RUNTIME_VARIABLE, "").partition(":")[0]:
            where = Path(runtime) / SOCKET
            where.unlink(missing_ok=True)
            self._path.symlink_to(where)
        self._server = _Server(where, folder, admins, shows_jobs)
        self._where = where
        with contextlib.suppress(OSError):  # no member itself: then only its own group may ask
            os.chown(where, -1, group)
        where.chmod(SOCKET_MODE)
        self._server.begin("processes")

    def close(self) -> None:
        """Close the socket; answers on their way are cut."""
        self._server.end()
        for path in (self._where, self._path):
            with contextlib.suppress(OSError):  # a disk that turned read-only
                path.unlink(missing_ok=True)


class _Server(BoundedServer, socketserver.UnixStreamServer):
    clients = CLIENTS
    busy_answer = msgspec.json.encode(Answer(is_busy=True))

    def __init__(self, where: Path, folder: Path, admins: Group | None, shows_jobs: bool) -> None:
        self._shows_jobs = shows_jobs
        self._where = where
        self._folder = folder
        self._admins = admins
        self._hides = hides_processes()
        super().__init__(str(where), _Handler)

    def server_bind(self) -> None:
        with short_address(self._where) as address:
            self.socket.bind(address)

    def answer(self, question: Question, peer: socket.socket) -> Answer | JobsAnswer:
        """Return what this client may see of the span."""
        if question.about == "jobs":
            return self._jobs(question, peer)
        if not question.since_s < question.until_s <= day_begin(question.since_s) + DAY_S:
            return Answer(problem="The span must be a part of one day.")
        try:
            found = listed(self._folder, question.since_s, question.until_s)
        except (StoreError, ValueError, OverflowError, OSError) as error:  # or the year 30,000
            return Answer(problem=str(error))
        if self._sees_all(peer):
            return found
        return told(found, _name(peer), self._hides, self._admins)

    def _jobs(self, question: Question, peer: socket.socket) -> JobsAnswer:
        try:
            found = stored_uses(self._folder, question.since_s, question.until_s)
        except (StoreError, ValueError, OverflowError, OSError) as error:
            return JobsAnswer(problem=str(error))
        if self._sees_all(peer):
            return found
        return told_jobs(found, _name(peer), self._shows_jobs and not self._hides)

    def _sees_all(self, peer: socket.socket) -> bool:
        user, admins = peer_of(peer).user, self._admins
        if user in (0, os.geteuid()):
            return True
        return admins is not None and admins.number in groups_of(peer)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server
    timeout = REQUEST_S

    def handle(self) -> None:
        line = self.rfile.readline(QUESTION_BYTES)
        if not line:  # it only wanted to know whether we are there
            return
        try:
            question = msgspec.json.decode(line, type=Question)
        except msgspec.DecodeError:
            answer: Answer | JobsAnswer = Answer(problem="That is no question.")
        else:
            answer = self.server.answer(question, self.request)
        self.wfile.write(msgspec.json.encode(answer))


def told(found: Answer, user: str | None, hides: bool, admins: str | None) -> Answer:
    """Return what a user is told: of others' processes no command line, and where the machine
    hides them (`hides`) not who they are either."""
    place = 1 + [*PROGRAM_COLUMNS].index("user")
    others = {n for n, each in found.programs.items() if user is None or each[place] != user}
    hidden = {"command"}
    if hides:
        hidden = {*PROGRAM_COLUMNS, *PROCESS_COLUMNS} - ALWAYS_SHOWN
    programs = {
        number: _without(hidden, ("gpu", *PROGRAM_COLUMNS), each) if number in others else each
        for number, each in found.programs.items()
    }
    rows = [
        _without(hidden, ("ts", "program", *PROCESS_COLUMNS), each) if each[1] in others else each
        for each in found.rows
    ]
    is_complete = (programs, rows) == (found.programs, found.rows)
    what = "names and command lines" if hides else "command lines"
    who = [*dict.fromkeys(("root", user_name(os.geteuid()))), *([f"group {admins}"] * bool(admins))]
    said = f"The {what} of others' processes are left out: only {', '.join(who)} may see them."
    withheld = None if is_complete else said
    return msgspec.structs.replace(found, programs=programs, rows=rows, withheld=withheld)


def told_jobs(found: JobsAnswer, user: str | None, shows_others: bool) -> JobsAnswer:
    """Return what a user is told of jobs: of others' no command line, or where they are not shown
    at all only what they took of each GPU in an hour, together."""
    place = 1 + [*PROGRAM_COLUMNS].index("user")
    others = {n for n, each in found.programs.items() if user is None or each[place] != user}
    if not others:
        return found
    if shows_others:
        programs = {
            n: _without({"command"}, ("gpu", *PROGRAM_COLUMNS), each) if n in others else each
            for n, each in found.programs.items()
        }
        said = "The command lines of others' jobs are left out: only root and the daemon's user"
        return msgspec.structs.replace(found, programs=programs, withheld=f"{said} may see them.")
    return msgspec.structs.replace(
        found,
        programs={n: each for n, each in found.programs.items() if n not in others},
        uses=[hidden_use(each) if each[2] in others else each for each in found.uses],
        causes=[each for each in found.causes if each[2] not in others],
        withheld="Others' jobs are left out: `others` in the daemon's configuration shows them.",
    )


def _name(peer: socket.socket) -> str | None:
    user = peer_of(peer).user
    return None if user == NOBODY else user_name(user)


def _without(hidden: set[str], names: Iterable[str], row: Iterable[Any]) -> tuple[Any, ...]:
    named = zip(names, row, strict=True)
    return tuple([None if name in hidden else value for name, value in named])


def groups_of(peer: socket.socket) -> set[int]:
    """Return the numbers of the groups that the other end is in."""
    try:
        more = peer.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, GROUPS_BYTES)
    except OSError:  # an older kernel, or too many
        more = b""
    return {peer_of(peer).group, *array("I", more)}


def hides_processes(mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Return whether this machine shows users their own processes alone (`hidepid`, proc(5))."""
    try:
        lines = [line.split() for line in mounts.read_text("utf-8", "replace").splitlines()]
    except OSError:
        return False
    options = [each[3].split(",") for each in lines if each[1:3] == ["/proc", "proc"]]
    hidden = [o for o in (options[-1] if options else ()) if o.startswith("hidepid=")]
    return bool(hidden) and hidden[-1] not in SHOWN
