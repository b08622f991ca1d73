"""What goes into the target process: it runs on old Pythons and needs nothing but itself."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

import pytest

from gpuadvisor.collectors.script.bundle import bundle_folder
from gpuadvisor.errors import AdvisorError

OLDEST = (3, 10)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    yield bundle_folder()
    patch.undo()


def test_it_is_written_once(bundle):
    assert bundle_folder() == bundle
    assert [path.name for path in bundle.parent.iterdir()] == [bundle.name]


def test_folders_of_other_versions_go_when_nobody_used_them_for_long(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "gpuadvisor"
    used, unused = cache / "harness-used", cache / "harness-unused"
    for folder, days in ((used, 29), (unused, 31)):
        folder.mkdir(parents=True)
        (folder / "sitecustomize.py").touch()
        os.utime(folder, (time.time() - 86_400 * days,) * 2)
    assert set(cache.iterdir()) == {used, unused}
    folder = bundle_folder()
    assert set(cache.iterdir()) == {used, folder}


def test_using_a_folder_keeps_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = bundle_folder()
    os.utime(folder, (0, 0))
    assert bundle_folder() == folder
    assert folder.stat().st_mtime > time.time() - 86_400


def test_packages_declare_what_goes_in(bundle):
    library = bundle / "library/gpuadvisor"
    assert {path.name for path in library.iterdir() if path.is_dir()} == {
        "collectors", "domain", "tuners"
    }  # fmt: skip
    assert {path.stem for path in (library / "tuners").glob("*.py")} == {"__init__", "base"}
    knobs, copied = Path(files("gpuadvisor.tuners.knobs")), library / "tuners/knobs"
    assert {path.relative_to(copied) for path in copied.rglob("*.py")} == {
        path.relative_to(knobs) for path in knobs.rglob("*.py")
    }


def test_it_parses_on_the_oldest_python(bundle):
    for path in bundle.rglob("*.py"):
        ast.parse(path.read_text(), str(path), feature_version=OLDEST)


def test_it_imports_only_the_standard_library_and_itself_at_the_top(bundle):
    library = bundle / "library"
    ours = {
        ".".join(path.relative_to(library).with_suffix("").parts) for path in library.rglob("*.py")
    }
    packages = {name.removesuffix(".__init__") for name in ours}
    for path in bundle.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            for name in imported(node):
                known = name.partition(".")[0] in sys.stdlib_module_names or name in packages
                assert known, f"{path.relative_to(bundle)} imports {name}"


def imported(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_it_imports_on_the_oldest_python(bundle):
    python = shutil.which("python3.10")
    probe = [python, "-c", "import sys; print(sys.version_info >= (3, 10))"]
    if python is None or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("no Python 3.10 here")
    library = bundle / "library"
    modules = [
        ".".join(path.relative_to(library).with_suffix("").parts)
        for path in library.rglob("*.py")
        if path.name != "__init__.py" and path.name != "sitecustomize.py"
    ]
    text = f"import sys; sys.path.insert(0, {str(library)!r}); import {', '.join(modules)}"
    run = subprocess.run([python, "-c", text], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_a_folder_that_python_cannot_import_from(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a:b"))
    with pytest.raises(AdvisorError, match="set XDG_CACHE_HOME to another folder"):
        bundle_folder()


def test_without_a_home(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", home)
    with pytest.raises(AdvisorError, match="set HOME or XDG_CACHE_HOME"):
        bundle_folder()


def test_a_full_disk_is_left_as_it_was(tmp_path):
    program = (
        "import resource\n"
        "from gpuadvisor.collectors.script.bundle import bundle_folder\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "bundle_folder()"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert f"cannot write to the cache folder {tmp_path}" in done.stderr
    assert list((tmp_path / "gpuadvisor").iterdir()) == []
