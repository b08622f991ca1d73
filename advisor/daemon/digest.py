"""The digest of jobs: once a week, or as often as is configured, to a webhook.

Another process makes it, as what it needs would stay in the daemon's memory all week.
"""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from gpuadvisor.daemon.alerts import host, post_json
from gpuadvisor.daemon.configuration import Jobs

LOG = logging.getLogger(__name__)
SENT = "digest.sent"
"""An empty file in the store's folder, changed last when a digest was sent last."""
RETRY_S = 3600.0
"""Seconds before another try."""
MAKING_S = 300.0
"""Seconds after which making it has failed: a month of 64 GPUs takes some."""
POST_S = 30.0


class Digests:
    """Sends the digest when it is due; asked about once a minute."""

    def __init__(self, folder: Path, chosen: Jobs) -> None:
        self.chosen = chosen
        """What is configured, which may be changed at any time."""
        self._folder = folder
        self._tried_s = -RETRY_S
        self._thread: threading.Thread | None = None

    def tend(self, now_s: float) -> None:
        """Begin to make and send it where it is due, and do not wait. `now_s` is Unix time."""
        if self.chosen.digest is None or (self._thread and self._thread.is_alive()):
            return
        sent_s = self._sent_s(now_s)
        is_due = now_s - sent_s >= self.chosen.digest_every_s
        if is_due and time.monotonic() - self._tried_s >= RETRY_S:
            self._tried_s = time.monotonic()
            given = (str(self.chosen.digest), sent_s, now_s)
            self._thread = threading.Thread(target=self._send, args=given, daemon=True)
            self._thread.start()

    def join(self) -> None:
        """Wait for one that is on its way."""
        if self._thread is not None:
            self._thread.join()

    def _sent_s(self, now_s: float) -> float:
        """Return when one was sent last; at first, and after a clock that was ahead and was set
        back, when that was asked for."""
        try:
            sent_s = (self._folder / SENT).stat().st_mtime
        except OSError:
            sent_s = math.inf
        if sent_s > now_s:
            self._note(now_s)
        return min(sent_s, now_s)

    def _note(self, now_s: float) -> None:
        path = self._folder / SENT
        try:
            path.touch(0o600)
            os.utime(path, (now_s, now_s))
        except OSError as error:
            LOG.warning("%s cannot be written (%s): digests will not be sent", path, error)

    def _send(self, webhook: str, since_s: float, now_s: float) -> None:
        words = ("jobs", "--digest", "--since", f"{max(now_s - since_s, 3600.0):.0f}s")
        try:
            made = subprocess.run(
                [sys.executable, "-P", "-m", "gpuadvisor", *words],
                capture_output=True, text=True, timeout=MAKING_S, check=False,
            )  # fmt: skip
            if made.returncode:
                raise ChildProcessError(made.stderr.strip().splitlines()[-1:])
            body = {"version": 1, "kind": "digest", "host": host(), "text": made.stdout}
            post_json(webhook, json.dumps(body), POST_S)
        except Exception as error:
            LOG.error("the digest could not be sent (%s); trying again in an hour", error)
        else:
            self._note(now_s)
            LOG.info("the digest was sent")
