"""What a job in a repository's CI needs to gate a script, as far as it can be told from here.

That is gpuadvisor, the script's packages and the variables that it was measured with.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gpuadvisor.collectors.worktrees import Repository
from gpuadvisor.errors import UsageError
from gpuadvisor.tuning.live.of_process import MATTERING
from gpuadvisor.version import __version__

GITLAB = Path(".gitlab-ci.yml")
"""The file of a repository with which its CI at GitLab begins."""
_HOST = re.compile(r"(?:://(?:[^/@]*@)?|^[^/@]*@)([^/:]+)")
"""The host in the URL of a remote, `https://host/a/b` or `git@host:a/b`."""
_SSH = re.compile(r"(?:ssh://)?(?:[^/@:]+@)(?P<host>[^/:]+)(?::\d+)?[:/]/?(?P<path>.+)")
"""The URL of a remote over SSH."""
_TORCH = re.compile(r"\s*torch\b(?!-)")
"""A requirement that is torch itself."""
UNTOLD = {
    *("VIRTUAL_ENV", "CONDA_DEFAULT_ENV", "CUDA_VISIBLE_DEVICES"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"),
    "PYTHONPATH",
}
"""Variables that a machine has of its own or that change no step, and the one told apart."""


def ci_of(repository: Repository) -> str:
    """Return whose CI the repository uses, by its files, else by where it is pushed."""
    if (repository.root / GITLAB).exists():
        return "gitlab"
    if (repository.root / ".github").exists():
        return "github"
    hosts = (_HOST.search(url) for url in repository.remotes())
    return "gitlab" if any(host and "gitlab" in host[1] for host in hosts) else "github"


@dataclass(frozen=True)
class Needs:
    """What a job needs, and what that rests on."""

    gpuadvisor: str
    """What pip installs of gpuadvisor: `gpuadvisor==0.1.0`, or a URL."""
    assumed: str
    """A sentence: what has to hold so that pip gets that."""
    requirements: str
    """Arguments of pip for what the script needs."""
    python_path: tuple[str, ...]
    """Folders of $PYTHONPATH in the repository, as paths from its root."""
    outside: tuple[str, ...]
    """Folders of $PYTHONPATH outside of the repository, which a job does not have."""
    environment: Mapping[str, str]
    """Further variables that the script was measured with."""

    def told(self) -> Iterator[str]:
        """Yield what is assumed, and what the script was measured with here and is no part of it.

        Sentences.
        """
        yield self.assumed
        if self.outside:
            yield (
                f"not in the workflow: {os.pathsep.join(self.outside)} of PYTHONPATH, which the "
                "repository does not hold: have the job install what lies there"
            )
        known = {*self.environment, *UNTOLD}
        if rest := [n for n in sorted(os.environ) if MATTERING.match(n) and n not in known]:
            yield (
                "set here and not in the workflow, as they may be this machine's own: "
                f"{', '.join(rest)}: --env NAME writes one there"
            )


def needs_of(root: Path, environment: Mapping[str, str]) -> Needs:
    """Return what a job needs in the repository at `root`, for a script that was measured with this
    environment beside our own."""
    inside, outside, top = [], [], root.resolve()
    given = environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    for entry in filter(None, given.split(os.pathsep)):
        path = Path(entry).resolve()
        if path.is_relative_to(top):
            inside.append(path.relative_to(top).as_posix())
        else:
            outside.append(entry)
    others = {name: text for name, text in environment.items() if name != "PYTHONPATH"}
    return Needs(*_origin(root), _requirements(root), tuple(inside), tuple(outside), others)


def _origin(root: Path) -> tuple[str, str]:
    """Return where this gpuadvisor came from, as far as its installation tells and CI can have it:
    what pip installs, and what has to hold for that.

    `root` is the repository that is gated. Format: PEP 610, `direct_url.json`.
    """
    try:
        told = json.loads(distribution("gpuadvisor").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        told = {}
    url, vcs = str(told.get("url", "")), told.get("vcs_info")
    below = f"#subdirectory={told['subdirectory']}" if told.get("subdirectory") else ""
    if not url:
        return (
            f"gpuadvisor=={__version__}",
            f"the job installs gpuadvisor {__version__} from a package index, as this one tells no "
            "other origin: set PIP_INDEX_URL there if yours is not pip's own",
        )
    if url.startswith("file:"):
        return _of_path(Path(unquote(urlsplit(url).path)), root, below)
    there = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url
    return (
        f"gpuadvisor @ {there}{below}",
        f"the job installs gpuadvisor from {url}, as here: it has to reach that",
    )


def _of_path(path: Path, root: Path, below: str) -> tuple[str, str]:
    """Return how a job gets a gpuadvisor that was installed from a file or a folder here."""
    if path.is_relative_to(root):
        inside = path.relative_to(root).as_posix()
        return (f"./{inside}", f"the job installs gpuadvisor from {inside}: commit that")
    try:
        clone = Repository.around(path if path.is_dir() else path.parent)
        commit = clone.version("HEAD").commit
        has_changes = clone.has_changes
    except UsageError:
        clone = None
    if path.is_dir() and clone is not None:
        url, is_there = clone.origin_of(commit)
        if url := _over_https(url):
            lacks = "" if is_there else f"; push commit {commit[:12]} first, no remote has it here"
            lacks += f"; what is not committed in {path} is not in it" if has_changes else ""
            return (
                f"gpuadvisor @ git+{url}@{commit}{below}",
                f"the job installs gpuadvisor from {url}, which {path} is a clone of: it has to "
                f"reach that{lacks}",
            )
    return (
        f"gpuadvisor @ {path.as_uri()}{below}",
        f"the job installs gpuadvisor from {path}, as here, which only a runner on this machine "
        "has: elsewhere write a URL of it to GPUADVISOR in the workflow",
    )


def _over_https(url: str) -> str:
    """Return where anybody clones a remote from, without a user's name; empty for a local one."""
    if ssh := _SSH.fullmatch(url):
        return f"https://{ssh['host']}/{ssh['path']}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _requirements(root: Path) -> str:
    """Return pip's arguments for what the script needs, as far as the repository says it.

    Torch is needed in any case, and not every library that is used with it depends on it.
    """
    listed = text_of(root / "requirements.txt")
    try:
        parsed = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    except (OSError, ValueError):
        parsed = {}
    project = parsed.get("project", {})
    needs = project.get("dependencies", []) if isinstance(project, dict) else []
    has_torch = any(_TORCH.match(each) for each in (*listed.splitlines(), *map(str, needs)))
    found = ["-r requirements.txt"] if listed else []
    # Editable: else both versions would import the one that is installed.
    if "project" in parsed or (root / "setup.py").is_file():
        found.append("-e .")
    return " ".join([*found, *([] if has_torch else ["torch"])])


def text_of(path: Path) -> str:
    """Return a file's text; empty where there is none."""
    return path.read_text("utf-8", "replace") if path.is_file() else ""
