"""Where the script's own files are loaded, and loops of trainers: rewritten before they are run.

Nothing rewritten is stored: bytecode files stay as they are, and what reads a module's source gets
the file's own.
"""

# ruff: noqa: PTH100, PTH109, PTH110, PTH113, PTH118, PTH119, PTH120, PTH123, PTH208
# Paths are texts here, as the import system's are.
from __future__ import annotations

import ast
import functools
import os
import re
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from gpuadvisor.collectors.script.child.channel import Report, guarded
from gpuadvisor.collectors.script.child.shortening import loop_rewriting
from gpuadvisor.collectors.script.child.shortening.branch_names import Names
from gpuadvisor.collectors.script.child.shortening.loops import Loops, begin
from gpuadvisor.collectors.script.child.shortening.progress import Progress
from gpuadvisor.collectors.script.specification import Shortening

TRAINERS = frozenset({
    "accelerate.utils.memory",
    "composer.trainer.trainer",
    "detectron2.engine.train_loop",
    "fastai.learner",
    "flair.trainers.trainer",
    "ignite.engine.engine",
    "keras.src.backend.torch.trainer",
    "lightning.pytorch.loops.fit_loop",
    "mmengine.runner.loops",
    "pytorch_lightning.loops.fit_loop",
    "sentence_transformers.SentenceTransformer",
    "sentence_transformers.fit_mixin",
    "skorch.net",
    "transformers.trainer",
    "ultralytics.engine.trainer",
})  # fmt: skip
"""Modules of libraries that hold the loops over epochs and steps of their trainers."""
FRAMEWORKS = frozenset({"torch", "torchaudio", "torchvision", "triton"})
"""Packages that are never a script's own, also where their developers run them from source."""
_TRAINS = re.compile(rb"\.(?:backward|step)\(")
"""What the text of a trainer holds. Others of a script's project are left as they are: to rewrite
a file of 700 lines takes 70 ms, and a library has hundreds."""
MOST_FILES = 40
"""Files that are read ahead, at some 50 ms each. A script has few; whoever runs a library from its
own repository has hundreds."""

Rewrite = Callable[[bytes, str, bool], "CodeType | None"]
"""Takes a file's bytes, its path and whether its generators may end early; returns None where no
loop can, or where it cannot be rewritten."""


def install(shortening: Shortening, progress: Progress, channel: Report | None = None) -> Loops:
    """Rewrite what is loaded from here on, the script itself included.

    Called before the script begins; returns what knows its loops, fed through `progress`. The
    `channel` is told of files that could not be rewritten, but not of their mistakes, which the
    interpreter shows.
    """
    loops = begin(shortening, progress)
    own_files = OwnFiles(lambda path: is_own(path) or is_of_project(path))

    def rewrite(source: bytes, path: str, generators: bool) -> CodeType | None:
        code = None
        with guarded(channel, f"end the loops of {os.path.basename(path)} early"):
            numbers = loops.count, loops.branches.count
            try:
                done = loop_rewriting.rewrite(
                    source, path, *numbers, generators, own_files.read, channel
                )
                code = loop_rewriting.compiled(done, path) if done.sites or done.marks else None
                loops.add(done.sites, done.learns, done.marks)
            except SyntaxError:
                if not loop_rewriting.is_faulty(source, path):
                    raise
        return code

    sys.meta_path.insert(0, Finder(rewrite))
    take_over_main(rewrite)
    rewrite_spawned(rewrite)
    return loops


class Loader(SourceFileLoader):
    """Loads a file with its loops rewritten; as it is where that fails."""

    def __init__(self, name: str, path: str, rewrite: Rewrite) -> None:
        super().__init__(name, path)
        self._rewrite = rewrite

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        code = self._rewrite(self.get_data(path), path, fullname in TRAINERS)
        return code or super().get_code(fullname)


class Finder(MetaPathFinder):
    """Finds the script's own modules and trainers, as the other finders do."""

    def __init__(self, rewrite: Rewrite) -> None:
        self._rewrite = rewrite

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is self:
                continue
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find is not None else None
            if spec is not None:
                # Other loaders change the code in ways of their own.
                if type(spec.loader) is SourceFileLoader and _is_of_interest(fullname, spec):
                    spec.loader = Loader(spec.loader.name, spec.loader.path, self._rewrite)
                return spec
        return None


def _is_of_interest(name: str, spec: ModuleSpec) -> bool:
    try:
        if name in TRAINERS or spec.origin is None:
            return name in TRAINERS
        if is_own(spec.origin):
            return True
        is_theirs = name.partition(".")[0] in FRAMEWORKS
        return not is_theirs and is_of_project(spec.origin) and _trains(spec.origin)
    except OSError:  # the working directory is gone
        return False


def _trains(path: str) -> bool:
    with open(path, "rb") as file:
        return _TRAINS.search(file.read()) is not None


def is_own(path: str) -> bool:
    """Say whether a file is the script's: it lies in its folder or the working directory.

    Libraries may lie there, too, in a virtual environment.
    """
    return not _is_library_s(path) and _is_below(path, _own_folders())


def is_of_project(path: str) -> bool:
    """Say whether a file lies in the repository of the script, or in a folder of $PYTHONPATH.

    Trainers lie beside the scripts that use them, as in `src/` and `scripts/`, and are no libraries
    that were installed.
    """
    return not _is_library_s(path) and _is_below(path, _project_folders(*_own_folders()))


def _is_library_s(path: str) -> bool:
    return any(
        "site-packages" in text or "dist-packages" in text or text.startswith(library_folders())
        for text in (path, os.path.realpath(path))
    )


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return os.path.realpath(path).startswith(_with_slash(*map(os.path.realpath, folders)))


def _own_folders() -> tuple[str, ...]:
    """Return the working directory and the script's folder."""
    if main := getattr(sys.modules.get("__main__"), "__file__", None) or main_script():
        return os.getcwd(), os.path.dirname(os.path.realpath(main))
    return (os.getcwd(),)


@functools.lru_cache(maxsize=8)
def _project_folders(*own: str) -> tuple[str, ...]:
    """Return the work trees of the repositories in which a script's own folders lie, and the
    folders of $PYTHONPATH."""
    trees = filter(None, map(_work_tree, own))
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return (*trees, *filter(None, named))


def library_folders() -> tuple[str, ...]:
    """Return the folders of Python's own library, of the harness and of installed packages.

    Each has a slash at its end. Packages lie also where `pip install --target` put them, which is
    told by their metadata; but not where the script or the working directory lies in that folder,
    as theirs would be taken for a library's.
    """
    return (*_standard_folders(), *_installed_folders(tuple(sys.path), _own_folders()))


def _work_tree(folder: str) -> str | None:
    """Return the folder of the repository that a folder is in; None where it is in none."""
    while not os.path.exists(os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)
    return folder


@functools.cache
def _standard_folders() -> tuple[str, ...]:
    folders = os.path.dirname(os.__file__), __file__.rpartition("gpuadvisor")[0]
    return _with_slash(*folders, *map(os.path.realpath, folders))


@functools.lru_cache(maxsize=8)
def _installed_folders(path: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    """Return those folders of a `sys.path` in which packages are installed, but not the own."""
    inside = _with_slash(*map(os.path.realpath, own))
    folders = [folder for folder in path if folder and _has_metadata(folder)]
    real = {folder: _with_slash(os.path.realpath(folder)) for folder in folders}
    apart = [each for each in folders if not any(one.startswith(real[each]) for one in inside)]
    return tuple(dict.fromkeys(f for each in apart for f in (*_with_slash(each), *real[each])))


@functools.cache
def _has_metadata(folder: str) -> bool:
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder))
    except OSError:  # a zip file, or nothing
        return False


def _with_slash(*folders: str) -> tuple[str, ...]:
    return tuple(os.path.join(folder, "") for folder in folders)


def main_script() -> str | None:
    """Return the path of the script that this process was started with, if it runs one."""
    arguments: list[str] = getattr(sys, "argv", None) or []
    if not arguments or not os.path.isfile(arguments[0]):
        return None
    return os.path.abspath(arguments[0])


def take_over_main(rewrite: Rewrite) -> None:
    """Have the script itself rewritten, which no finder finds.

    The interpreter asks `sys.path_hooks` whether the script's path can be imported from, as from a
    zip file, and leaves it to `runpy` if so. That happens after this, with the script's arguments
    and nothing but the start-up files run.
    """
    script = main_script()

    def rewritten(path: str) -> Callable[[], CodeType] | None:
        code = None
        with suppress(OSError), open(path, "rb") as file:
            code = rewrite(file.read(), path, False)
        return None if code is None else lambda: code

    if script is not None:
        _run_main(script, None, rewritten)


def run_instead(started: str, path: str) -> None:
    """Have another script run in the place of the one that this process was started with.

    Called before the interpreter looks at its script; both paths are absolute.
    """

    def code() -> CodeType:
        with open(path, "rb") as file:
            return compile(file.read(), path, "exec", dont_inherit=True)

    _run_main(started, path, lambda _: code)


def _run_main(
    script: str, instead: str | None, load: Callable[[str], Callable[[], CodeType] | None]
) -> None:
    """Run what `load` gives for a script's path, as that script or as another one `instead`."""
    asked = False

    def hook(path: str) -> Any:
        nonlocal asked
        if asked or os.path.abspath(path) != script:
            raise ImportError
        asked = True  # not removed: the interpreter is walking through the list
        code = load(path)
        if code is None:
            raise ImportError
        _run_once(code, path, instead or path)
        return object()

    sys.path_hooks.insert(0, hook)


def _run_once(code: Callable[[], CodeType], asked: str, path: str) -> None:
    """Put what `python path` does in the place of what runs the main module of a folder.

    `asked` is the path for which the interpreter takes it.
    """
    original = runpy._run_module_as_main  # type: ignore[attr-defined]

    def run(*_: Any) -> None:
        runpy._run_module_as_main = original  # type: ignore[attr-defined]
        sys.path_importer_cache.pop(asked, None)
        if sys.path[:1] == [asked]:
            if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
                del sys.path[0]
            else:
                sys.path[0] = os.path.dirname(os.path.realpath(path))
        names = sys.modules["__main__"].__dict__
        names["__file__"] = path
        if sys.version_info < (3, 15):
            names["__cached__"] = None
        names["__loader__"] = SourceFileLoader("__main__", path)
        try:
            exec(code(), names)
        except BaseException as error:
            if error.__traceback__ is not None:  # without this frame; Python 3.10 shows it still
                error.__traceback__ = error.__traceback__.tb_next
            raise

    runpy._run_module_as_main = run  # type: ignore[attr-defined]


def rewrite_spawned(rewrite: Rewrite) -> None:
    """Have the script rewritten, too, where multiprocessing's children load it once more."""
    original = runpy._get_code_from_file  # type: ignore[attr-defined]

    def get_code(*arguments: Any) -> Any:
        result = original(*arguments)  # the code; with the path in a tuple before Python 3.12
        path = os.path.abspath(os.fsdecode(arguments[-1]))
        code = None
        with suppress(OSError):
            if is_own(path):
                with open(path, "rb") as file:
                    code = rewrite(file.read(), path, False)
        if code is None:
            return result
        return (code, *result[1:]) if isinstance(result, tuple) else code

    runpy._get_code_from_file = get_code  # type: ignore[attr-defined]


class OwnFiles:
    """Reads a file with all that it imports of the script's own, when it is loaded: a file's branch
    may call what another one changes."""

    def __init__(self, is_own: Callable[[str], bool]) -> None:
        self._is_own = is_own
        self._read: dict[str, tuple[ast.Module, Names]] = {}
        """Files that were read ahead, and are loaded yet."""
        self._folders: tuple[str, ...] = ()

    def read(self, source: bytes | str, path: str) -> tuple[ast.Module, Names]:
        """Return a file's tree and what is known of its names. Raises what `ast.parse` raises."""
        path = os.path.realpath(path)
        if path not in self._read:
            self._folders = self._folders or (os.path.dirname(path), os.getcwd())
            trees = {path: ast.parse(source, path)}
            self._follow(trees[path], path, trees)
            stems = [_module_name(each) for each in trees]
            names = Names(*trees.values(), modules=stems)
            self._read.update((each, (tree, names)) for each, tree in trees.items())
        return self._read.pop(path)

    def _follow(self, tree: ast.Module, path: str, trees: dict[str, ast.Module]) -> None:
        """Read what a file imports."""
        for each in _imported(tree, path, self._folders):
            found = os.path.realpath(each)
            if len(trees) >= MOST_FILES or found in trees or not os.path.isfile(found):
                continue
            try:
                if self._is_own(found):
                    with open(found, "rb") as file:
                        trees[found] = ast.parse(file.read(), found)
                    self._follow(trees[found], found, trees)
            except (OSError, SyntaxError, ValueError, RecursionError):  # the script's own concern
                continue


def _module_name(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.basename(folder) if name == "__init__.py" else name[: -len(".py")]


def _imported(tree: ast.Module, path: str, folders: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths at which what a file imports may lie."""
    for node in ast.walk(tree):
        names, where = [], folders
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            begin = [node.module] if node.module else []
            names = [".".join([*begin, alias.name]) for alias in node.names] + begin
            if node.level:
                folder = path
                for _ in range(node.level):
                    folder = os.path.dirname(folder)
                where = (folder,)
        for name in names:
            for folder in where:
                stem = os.path.join(folder, *name.split("."))
                yield from (f"{stem}.py", os.path.join(stem, "__init__.py"))
