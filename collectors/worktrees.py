"""Versions of a git repository as folders of their own, which are gone afterwards.

The user's own work tree, index and branches are never written to; commits that hold what is not
committed yet are left to git's garbage collection, as those of `git stash create`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.collectors.script.run_folder import PREFIX, run_folder
from gpuadvisor.errors import UsageError
from gpuadvisor.interruption import to_its_end

LEFT_S = 86_400.0
"""Age from which on a work tree without a folder is nobody's: more than any comparison takes.
[own]"""
TIMEOUT_S = 600.0
"""Longest git command: a large checkout on a network disk takes minutes."""
WORKTREE = "the work tree"
"""What the state of the user's folder is called, whose changes are not committed."""
GITLINK = "160000 "
"""How entries of submodules begin in `git ls-files --stage`."""
POINTER = b"version https://git-lfs.github.com/spec/v1"
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
            here = folder.resolve()
            why = f"{here} is not in a git repository: run it in a checkout"
            if "dubious ownership" in done.stderr:
                why = (
                    f"git does not trust the owner of {here}: if you do, `git config --global "
                    f"--add safe.directory {here}`"
                )
            raise UsageError(
                f"{why}, or compare two folders with `gpuadvisor gate --base-folder OLD "
                "--head-folder NEW`"
            )
        root = Path(done.stdout.strip())
        return cls(root, folder.resolve().relative_to(root.resolve()))

    @property
    def is_shallow(self) -> bool:
        return self._said("rev-parse", "--is-shallow-repository") == "true"

    @property
    def has_changes(self) -> bool:
        """Whether the work tree holds what is not committed and git does not ignore."""
        return bool(self._said("status", "--porcelain=v2"))

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
        get = f"get it with `{fetch}`" if self.remotes() else "`git log --all` lists what there is"
        raise UsageError(f"there is no commit {name} in {self.root}: {get}")

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

    def between(self, good: Version, bad: Version) -> list[Version]:
        """Return the commits after `good` up to `bad`, oldest first, each under its subject.

        Of a merge only the first parent counts: what came with a branch came with its merge.
        UsageError where `bad` does not come after `good`.
        """
        if self.base_of(good, bad).commit != good.commit:
            raise UsageError(
                f"{bad.name} does not come after {good.name}: name a good commit among its parents"
            )
        format_ = "--format=%H %h (%s)"
        span = f"{good.commit}..{bad.commit}"
        options = ("--no-show-signature", "--first-parent", "--reverse", format_)
        lines = self._done("log", *options, span).splitlines()
        found = [line.partition(" ") for line in lines]
        if not found:
            raise UsageError(f"{good.name} and {bad.name} are the same commit: name two")
        return [Version(subject, commit) for commit, _, subject in found]

    def work_tree(self) -> Version:
        """Return the user's work tree as it is: HEAD, or a commit of no branch with all changes.

        New files count, unless git ignores them. UsageError where there is no commit yet.
        """
        head = self.version("HEAD")
        changed = self._said("status", "--porcelain=v2")
        if not changed:
            return head
        for line in changed.splitlines():
            # `1 .M S.M. ...`: a submodule with changed files of its own.
            if line[0] in "12" and line[5] == "S" and line[7] == "M":
                path = line.split(" ", 8)[8]
                raise UsageError(
                    f"the submodule {path} has changes that are not committed, which a work tree "
                    "of its commit would lack: commit them there, or compare two folders with "
                    "--base-folder and --head-folder"
                )
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
        """Say whether a commit has such a file, relative to the root; a submodule may have it."""
        kinds = (
            self._said("cat-file", "-t", f"{version.commit}:{each.as_posix()}")
            for each in (path, *path.parents)
        )
        return next(filter(None, kinds), "") in ("blob", "commit")

    def renamed(self, old: Version, new: Version) -> dict[Path, Path]:
        """Return the files that git finds again under another name, from the root: new by old."""
        options = ("-r", "-z", "--find-renames", "--diff-filter=R", "--name-status")
        told = self._said("diff-tree", *options, old.commit, new.commit).split("\0")
        return {Path(was): Path(now) for was, now in zip(told[1::3], told[2::3], strict=False)}

    def changed(self, old: Version, new: Version) -> list[Path]:
        """Return the files that are not the same in both versions, from the root."""
        told = self._said("diff-tree", "-r", "-z", "--name-only", old.commit, new.commit)
        return [Path(name) for name in told.split("\0") if name]

    def lfs_pointers(self, folder: Path) -> list[str]:
        """Return the files of a work tree that are Git LFS pointers instead of their content."""
        names = _git(folder, "ls-files", "-z", ":(attr:filter=lfs)").stdout.split("\0")
        return [name for name in filter(None, names) if _is_pointer(folder / name)]

    def remotes(self) -> list[str]:
        """Return the URLs that it is fetched from."""
        listed = self._said("config", "--get-regexp", r"^remote\..*\.url$").splitlines()
        return [line.partition(" ")[2] for line in listed]

    def origin_of(self, commit: str) -> tuple[str, bool]:
        """Return a remote's URL, and whether the remote has a commit as far as this clone knows.

        It is that of a remote which has the commit, else of the first one; empty without any.
        """
        options = ("--format=%(refname:lstrip=2)", "--contains", commit, "refs/remotes")
        branches = self._said("for-each-ref", *options).splitlines()
        for branch in branches:
            if url := self._said("config", f"remote.{branch.partition('/')[0]}.url"):
                return url, True
        return next(iter(self.remotes()), ""), False

    @contextmanager
    def checked_out(self, **versions: Version) -> Iterator[dict[str, Path]]:
        """Give each version a folder, by the names of the arguments, until the block ends.

        No hook of the user's runs. UsageError where git cannot check one out.
        """
        with run_folder() as above:
            _forget(self.root, _is_left)
            folders = {name: above / name for name in versions}
            try:
                for name, version in versions.items():
                    self._done(
                        "worktree", "add", "--quiet", "--detach", str(folders[name]), version.commit
                    )
                    self._fill(folders[name], version)
                yield folders
            finally:
                with to_its_end():
                    for folder in folders.values():
                        # Twice: also where files of the script's are write-protected or locked.
                        _git(self.root, "worktree", "remove", "--force", "--force", str(folder))
                    for folder in folders.values():
                        shutil.rmtree(folder, ignore_errors=True)
                    _forget(self.root, lambda known, _: known in folders.values())

    def _fill(
        self, tree: Path, version: Version, place: Path = Path(), git_folder: Path | None = None
    ) -> None:
        """Check out the submodules of a work tree, from what the user's own ones have.

        `place` is where that repository is in the user's work tree, and `git_folder` its git folder
        there. `git submodule` would fetch them again, and write to the configuration of all work
        trees. UsageError where the user's repository lacks one.
        """
        if not (tree / ".gitmodules").is_file():
            return
        links = _git(tree, "ls-files", "--stage", "-z").stdout.split("\0")
        for link in (link for link in links if link.startswith(GITLINK)):
            about, name = link.split("\t", 1)
            commit, path = about.split()[1], place / name
            kept = self._submodule(path, name, tree, git_folder or self._common())
            if kept is None or not _borrowed(kept, commit, tree / name):
                raise UsageError(
                    f"the submodule {path} is at {commit[:12]} in {version.name}, and that commit "
                    "is not here: get it with `git submodule update --init --recursive`, or with "
                    f"`git -C {path} fetch origin {commit}`; or clone both versions and give "
                    "--base-folder and --head-folder"
                )
            self._fill(tree / name, version, path, kept)

    def _submodule(self, path: Path, name: str, tree: Path, git_folder: Path) -> Path | None:
        """Return the git folder of a submodule of the user's; None where there is none.

        `path` is that in the user's work tree, `name` that in `tree`, a work tree of the repository
        above it, which has its git folder in `git_folder`.
        """
        if (self.root / path / ".git").exists():
            return Path(_git(self.root / path, "rev-parse", "--absolute-git-dir").stdout.strip())
        lines = ("config", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$")
        for line in _git(tree, *lines).stdout.splitlines():
            key, _, value = line.partition(" ")
            called = key.removeprefix("submodule.").removesuffix(".path")
            if value == name and (kept := git_folder / "modules" / called).is_dir():
                return kept
        return None

    def _common(self) -> Path:
        """Return the git folder that all work trees of the repository share."""
        return Path(self._said("rev-parse", "--path-format=absolute", "--git-common-dir"))

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


def _borrowed(kept: Path, commit: str, folder: Path) -> bool:
    """Check out a commit of another repository's git folder, as `git clone --shared` would.

    False where it is not there. A clone would need a branch that leads to it, and no shallow one.
    """
    _git(folder.parent, "init", "--quiet", str(folder))
    objects = folder / ".git" / "objects" / "info"
    objects.mkdir(exist_ok=True)
    (objects / "alternates").write_text(f"{kept / 'objects'}\n", "utf-8")
    if (kept / "shallow").is_file():
        shutil.copy(kept / "shallow", folder / ".git")
    return not _git(folder, "checkout", "--quiet", "--detach", commit).returncode


def _is_pointer(path: Path) -> bool:
    """Say whether a file is what Git LFS leaves in the place of a large one."""
    try:
        with path.open("rb") as file:
            return file.read(len(POINTER)) == POINTER
    except OSError:
        return False


def _forget(root: Path, is_meant: Callable[[Path, float], bool]) -> None:
    """Have git forget the work trees whose folder is gone and is meant, by its path and when git
    noted it, and no other."""
    common = _git(root, "rev-parse", "--path-format=absolute", "--git-common-dir").stdout.strip()
    for known in Path(common).glob("worktrees/*/gitdir") if common else ():
        with suppress(OSError):  # another forgets it, too
            folder = Path(known.read_text("utf-8").strip()).parent
            if not folder.exists() and is_meant(folder, known.stat().st_mtime):
                shutil.rmtree(known.parent, ignore_errors=True)


def _is_left(folder: Path, noted_s: float) -> bool:
    """Tell a work tree that a killed gpuadvisor left from one of a machine that shares the
    repository, and has temporary files of its own."""
    return folder.parent.name.startswith(PREFIX) and time.time() - noted_s > LEFT_S


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
