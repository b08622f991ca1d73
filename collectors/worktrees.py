"""Versions of a git repository as folders of their own, which are gone afterwards.

The user's own work tree, index and branches are never written to; commits that hold what is not
committed yet are left to git's garbage collection, as those of `git stash create`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.errors import UsageError
from gpuadvisor.interruption import to_its_end

TIMEOUT_S = 600.0
"""Longest git command: a large checkout on a network disk takes minutes."""
WORKTREE = "the work tree"
"""What the state of the user's folder is called, whose changes are not committed."""
_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "gpuadvisor"), ("EMAIL", "gpuadvisor@localhost"))
}


@dataclass(frozen=True)
class Version:
    """A commit, under the name that the user gave it."""

    name: str
    commit: str
    """The full commit; one without a branch where it holds what is not committed."""
    is_committed: bool = True


@dataclass(frozen=True)
class Repository:
    """A git repository, seen from a folder of the user's work tree."""

    root: Path
    """Top folder of the work tree."""
    inside: Path
    """The user's folder, relative to the root."""

    @classmethod
    def around(cls, folder: Path) -> Repository:
        """Return the repository around a folder; UsageError where there is none, or no git."""
        if shutil.which("git") is None:
            raise UsageError(
                "git is not installed: give two folders, --base-folder and "
                "--head-folder, or install git"
            )
        done = _git(folder, "rev-parse", "--show-toplevel")
        if done.returncode:
            why = f"{folder} is not in a git repository"
            if "dubious ownership" in done.stderr:
                why = f"git does not trust the owner of {folder} (safe.directory)"
            raise UsageError(
                f"{why}: run it in a checkout, or compare two folders with --base-folder and "
                "--head-folder"
            )
        root = Path(done.stdout.strip())
        return cls(root, folder.resolve().relative_to(root.resolve()))

    @property
    def is_shallow(self) -> bool:
        return self._said("rev-parse", "--is-shallow-repository") == "true"

    def version(self, name: str) -> Version:
        """Return the commit of that name; UsageError where there is none."""
        commit = self._said(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )
        if commit:
            return Version(name, commit)
        remote, _, branch = name.partition("/")
        fetch = f"git fetch {remote} {branch}" if branch else "git fetch --all --tags"
        if self.is_shallow:
            raise UsageError(
                f"there is no commit {name} in this shallow clone: get the history with "
                "`git fetch --unshallow` (GitHub: actions/checkout with `fetch-depth: 0`; GitLab: "
                "`GIT_DEPTH: 0`)"
            )
        raise UsageError(f"there is no commit {name} in {self.root}: get it with `{fetch}`")

    def base_of(self, base: Version, head: Version) -> Version:
        """Return where the head left the base: what the base got since is none of the head's doing.

        UsageError where they have nothing in common, or it is not in a shallow clone.
        """
        commit = self._said("merge-base", base.commit, head.commit)
        if commit:
            return Version(base.name, commit)
        if self.is_shallow:
            raise UsageError(
                f"where {head.name} left {base.name} is not in this shallow clone: get the history "
                "with `git fetch --unshallow` (GitHub: actions/checkout with `fetch-depth: 0`; "
                "GitLab: `GIT_DEPTH: 0`)"
            )
        raise UsageError(
            f"{head.name} and {base.name} have no commit in common: check both out and compare "
            "the folders with --base-folder and --head-folder"
        )

    def work_tree(self) -> Version:
        """Return the user's work tree as it is: HEAD, or a commit of no branch with all changes.

        New files count, unless git ignores them. UsageError where there is no commit yet.
        """
        head = self.version("HEAD")
        if not self._said("status", "--porcelain"):
            return head
        with tempfile.TemporaryDirectory(prefix="gpuadvisor-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index"), **_IDENTITY}
            mine = Path(self._said("rev-parse", "--path-format=absolute", "--git-path", "index"))
            if mine.is_file():  # its knowledge of unchanged files saves reading all of them
                shutil.copy2(mine, index["GIT_INDEX_FILE"])
            self._done("add", "--all", environment=index)
            tree = self._done("write-tree", environment=index)
            message = "the work tree as gpuadvisor gate found it"
            commit = self._done(
                "commit-tree", tree, "-p", head.commit, "-m", message, environment=index
            )
        return Version(WORKTREE, commit, is_committed=False)

    def holds(self, version: Version, path: Path) -> bool:
        """Say whether a commit has such a file, relative to the root."""
        return self._said("cat-file", "-t", f"{version.commit}:{path.as_posix()}") == "blob"

    def submodules(self, version: Version) -> bool:
        """Say whether a commit has submodules, which a new work tree has not."""
        return self.holds(version, Path(".gitmodules"))

    @contextmanager
    def checked_out(self, **versions: Version) -> Iterator[dict[str, Path]]:
        """Give each version a folder, by the names of the arguments, until the block ends.

        No hook of the user's runs. UsageError where git cannot check one out.
        """
        above = Path(tempfile.mkdtemp(prefix="gpuadvisor-gate-"))
        folders = {name: above / name for name in versions}
        try:
            for name, version in versions.items():
                self._done(
                    "worktree", "add", "--quiet", "--detach", str(folders[name]), version.commit
                )
            yield folders
        finally:
            with to_its_end():
                for folder in folders.values():
                    # Twice: also where files of the script's are write-protected or locked.
                    _git(self.root, "worktree", "remove", "--force", "--force", str(folder))
                shutil.rmtree(above, ignore_errors=True)
                for folder in folders.values():
                    _forget(self.root, folder)

    def _done(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        done = _git(self.root, *words, environment=environment)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it did not say why"])[-1]
            raise UsageError(
                f"`git {words[0]}` failed in {self.root}: {last.removeprefix('fatal: ')}"
            )
        return done.stdout.strip()

    def _said(self, *words: str) -> str:
        """Return what git says; empty where it fails."""
        done = _git(self.root, *words)
        return done.stdout.strip() if not done.returncode else ""


def _forget(root: Path, folder: Path) -> None:
    """Have git forget a work tree whose folder is gone, and no other."""
    common = _git(root, "rev-parse", "--path-format=absolute", "--git-common-dir").stdout.strip()
    for known in Path(common).glob("worktrees/*/gitdir") if common else ():
        if Path(known.read_text("utf-8").strip()).parent == folder and not folder.exists():
            shutil.rmtree(known.parent, ignore_errors=True)


def _git(
    folder: Path, *words: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    # In a hook git sets GIT_DIR and the like, which would point at the wrong repository; CI may
    # have set its own configuration.
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith("GIT_CONFIG")
    }
    environ |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    environ |= environment or {}
    line = ["git", "-C", str(folder), "-c", "core.hooksPath=/dev/null", *words]
    try:
        return subprocess.run(
            line,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=environ,
            timeout=TIMEOUT_S,
            start_new_session=True,  # Ctrl-C does not leave half a work tree
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"`git {words[0]}` took more than {TIMEOUT_S:g} s in {folder}") from None
