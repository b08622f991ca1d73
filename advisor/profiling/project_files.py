"""The files of a project, as profiles name them and as their repository does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from gpuadvisor.rules.facts.sources import INSTALLED


def project_files(
    folder: str | Path | None = None,
    script: str | None = None,
    paths: Iterable[str] = (),
    whole: bool = True,
) -> Callable[[str], str | None]:
    """Return a function from a file as a profile names it to its path in the project.

    That is from the top of the repository with `whole`, else from `folder` (None for the current
    one), in which `script` was started with `paths` to import from. The function returns None for a
    file that is not in the project, or in an environment there. Profiles cut off what is on
    `sys.path`.
    """
    folder = Path(os.path.realpath(folder or "."))
    tops = [each for each in (folder, *folder.parents) if (each / ".git").exists()]
    top = tops[0] if whole and tops else folder
    beside = folder if script is None else Path(os.path.realpath(folder / script)).parent
    roots = [beside, folder, top, top / "src", *(folder / each for each in paths)]

    @cache
    def place(file: str) -> str | None:
        if INSTALLED.search(file):
            return None
        for root in roots:
            path = Path(os.path.realpath(root / file))
            if path.is_relative_to(top) and path.is_file():
                return path.relative_to(top).as_posix()
        return None

    return place
