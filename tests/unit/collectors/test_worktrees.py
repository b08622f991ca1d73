"""Versions of a repository in folders of their own: what is in them, and what is left of them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuadvisor.collectors.worktrees import Repository
from gpuadvisor.errors import UsageError


def git(folder, *words):
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=n@n", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def commit(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "change")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "--quiet", "-b", "main")
    (folder / ".gitignore").write_text("data\n")
    commit(folder, train="old")
    commit(folder, train="new")
    return folder


def state(folder):
    """All that a user would see of a repository, and its files."""
    shown = [
        git(folder, *words.split())
        for words in (
            "status --porcelain",
            "worktree list",
            "branch --all",
            "stash list",
            "diff --cached",
        )
    ]
    return shown, {
        p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and ".git" not in p.parts
    }


def test_both_are_there_and_gone_afterwards(repo):
    repository, before = Repository.around(repo), state(repo)
    versions = {"base": repository.version("HEAD~1"), "head": repository.version("HEAD")}
    with repository.checked_out(**versions) as folders:
        texts = {side: (folder / "train.py").read_text() for side, folder in folders.items()}
        (folders["base"] / "left").write_text("by the script")
    assert texts == {"base": "old", "head": "new"}
    assert not any(folder.exists() or folder.parent.exists() for folder in folders.values())
    assert state(repo) == before


def test_they_are_gone_whatever_happens(repo):
    repository, before = Repository.around(repo), state(repo)
    with (
        pytest.raises(KeyboardInterrupt),
        repository.checked_out(base=repository.version("HEAD")) as folders,
    ):
        subprocess.run(["rm", "-r", str(folders["base"])], check=True)  # a script may do anything
        raise KeyboardInterrupt
    assert state(repo) == before
    assert not list((repo / ".git").glob("worktrees/*"))


def test_what_a_killed_one_left_is_forgotten_and_nothing_else(repo, tmp_path):
    for name in ("gpuadvisor-run-old", "gpuadvisor-run-new", "mine"):
        git(repo, "worktree", "add", "--quiet", "--detach", str(tmp_path / name / name))
        shutil.rmtree(tmp_path / name)
        if name != "gpuadvisor-run-new":
            os.utime(repo / ".git" / "worktrees" / name / "gitdir", (0, 0))
    repository = Repository.around(repo)
    with repository.checked_out(base=repository.version("HEAD")):
        pass
    left = {each.name for each in (repo / ".git").glob("worktrees/*")}
    assert left == {"gpuadvisor-run-new", "mine"}


def test_the_work_tree_as_it_is(repo):
    """What is staged, what is not, and what is new; not what git ignores."""
    (repo / "staged.py").write_text("staged")
    git(repo, "add", "staged.py")
    (repo / "train.py").write_text("edited")
    (repo / "fresh.py").write_text("fresh")
    (repo / "data").write_text("huge")
    repository, before = Repository.around(repo), state(repo)
    head = repository.work_tree()
    assert not head.is_committed
    with repository.checked_out(head=head) as folders:
        files = {p.name: p.read_text() for p in folders["head"].glob("*.py")}
        assert not (folders["head"] / "data").exists()
    assert files == {"train.py": "edited", "staged.py": "staged", "fresh.py": "fresh"}
    assert state(repo) == before


def test_a_work_tree_without_changes_is_its_commit(repo):
    head = Repository.around(repo).work_tree()
    assert (head.name, head.is_committed) == ("HEAD", True)
    assert head.commit == git(repo, "rev-parse", "HEAD")


def test_what_the_base_got_since_does_not_count(repo):
    left = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "--quiet", "-b", "feature")
    commit(repo, train="mine")
    git(repo, "checkout", "--quiet", "main")
    commit(repo, other="theirs")
    repository = Repository.around(repo)
    base, head = repository.version("main"), repository.version("feature")
    assert repository.base_of(base, head).commit == left


def test_hooks_do_not_run(repo, tmp_path):
    hook = repo / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    repository = Repository.around(repo)
    with repository.checked_out(base=repository.version("HEAD")):
        pass
    assert not (tmp_path / "ran").exists()


def test_a_folder_inside_is_found_again(repo):
    (repo / "examples").mkdir()
    assert Repository.around(repo / "examples").inside == Path("examples")


class TestSentences:
    def test_no_repository(self, tmp_path):
        with pytest.raises(UsageError, match=r"is not in a git repository: .* --base-folder"):
            Repository.around(tmp_path)

    @pytest.mark.parametrize(
        ("name", "fetch"),
        [("origin/main", "git fetch origin main"), ("v9", "git fetch --all --tags")],
    )
    def test_no_such_commit(self, repo, name, fetch):
        with pytest.raises(UsageError, match="`git log --all` lists what there is"):
            Repository.around(repo).version(name)
        git(repo, "remote", "add", "origin", "https://example.org/a.git")
        with pytest.raises(
            UsageError, match=f"there is no commit {name} in .*: get it with `{fetch}`"
        ):
            Repository.around(repo).version(name)

    @pytest.mark.parametrize("name", ["HEAD~1", "--all"])
    def test_a_shallow_clone(self, repo, tmp_path, name):
        git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repo}", "shallow")
        with pytest.raises(
            UsageError, match=f"no commit {name} in this shallow clone.*fetch-depth: 0"
        ):
            Repository.around(tmp_path / "shallow").version(name)

    def test_nothing_in_common(self, repo):
        git(repo, "checkout", "--quiet", "--orphan", "other")
        commit(repo, train="another")
        repository = Repository.around(repo)
        with pytest.raises(UsageError, match="have no commit in common"):
            repository.base_of(repository.version("main"), repository.version("other"))
