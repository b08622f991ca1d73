"""The git repository that holds the user's script: which commit ran, and whether it was edited."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 5.0
"""For one git command: a large work tree on a network disk must not delay a study."""


@dataclass(frozen=True)
class Revision:
    """What git says; None where there is no repository, no git, or no answer in time."""

    commit: str | None = None
    """Full hash."""
    dirty: bool | None = None
    """Whether tracked files, or the script itself, differ from the commit."""


def revision(script: Path) -> Revision:
    """Return the commit that the script's work tree is at; it never raises."""
    commit = _git(script.parent, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return Revision()
    tracked = _git(script.parent, "status", "--porcelain", "--untracked-files=no")
    own = _git(script.parent, "status", "--porcelain", "--", script.name)
    unknown = tracked is None or own is None
    return Revision(commit, None if unknown else bool(tracked or own))


def _git(folder: Path, *args: str) -> str | None:
    """Return what a git command prints, or None if it fails."""
    # In a hook git sets GIT_DIR and the like, which would point at the wrong repository.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ["GIT_OPTIONAL_LOCKS"] = "0"  # `status` must not write into the user's index
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=environ,
            timeout=TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
