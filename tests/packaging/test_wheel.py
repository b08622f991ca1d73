"""The wheel, alone in a clean environment without torch: what a user of pip gets."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("advisor", "collectors", "rules", "storage", "tui", "tuners")

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(600)]


def run(*argv, **options):
    environment = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}
    environment.update(options.pop("env", {}))
    return subprocess.run(argv, capture_output=True, text=True, env=environment, **options)


def done(*argv, **options):
    finished = run(*argv, **options)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    done(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory):
    """The `bin` of an environment that holds the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("clean")
    done(sys.executable, "-m", "venv", folder)
    done(folder / "bin" / "python", "-m", "pip", "install", wheel)
    return folder / "bin"


def held(wheel):
    """The names of all files in the wheel but those about it."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def source_copy(folder, *, links):
    """The tracked files in `folder`; without `links`, text files stand where a zip had links."""
    done("git", "-C", ROOT, "checkout-index", "--all", f"--prefix={folder}/")
    for link in [] if links else [path for path in folder.rglob("*") if path.is_symlink()]:
        target = str(link.readlink())
        link.unlink()
        link.write_text(target)
    return folder


def test_the_wheel_holds_every_file_and_the_licence(wheel):
    expected = set()
    for folder in FOLDERS:
        package = "gpuadvisor" if folder == "advisor" else f"gpuadvisor/{folder}"
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                expected.add(f"{package}/{path.relative_to(ROOT / folder)}")
    assert held(wheel) == expected
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_a_wheel_of_the_source_archive_is_the_same(wheel, tmp_path):
    source = source_copy(tmp_path / "source", links=True)
    build = "from setuptools import build_meta; build_meta.build_sdist('..')"
    done(sys.executable, "-m", "pip", "install", "--target", tmp_path / "site", "setuptools>=77")
    done(sys.executable, "-c", build, cwd=source, env={"PYTHONPATH": str(tmp_path / "site")})
    (archive,) = tmp_path.glob("*.tar.gz")
    done(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, archive)
    (built,) = tmp_path.glob("*.whl")
    assert held(built) == held(wheel)


def test_a_copy_without_its_links_builds_nothing_and_says_why(tmp_path):
    source = source_copy(tmp_path / "source", links=False)
    failed = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", tmp_path, source)
    assert failed.returncode != 0
    assert (
        "its symbolic links, such as src/gpuadvisor, are missing" in failed.stdout + failed.stderr
    )
    assert not list(tmp_path.glob("*.whl"))
    shutil.rmtree(source)


def test_every_module_can_be_imported_without_torch(clean, tmp_path):
    walk = (
        "import gpuadvisor, importlib, pkgutil\n"
        "for module in pkgutil.walk_packages(gpuadvisor.__path__, 'gpuadvisor.'):\n"
        "    name = module.name.rpartition('.')[2]\n"
        "    if name in ('__main__', 'sitecustomize') or 'pytest_plugin' in module.name:\n"
        "        continue  # the last is pytest's, which a user of it has\n"
        "    importlib.import_module(module.name)\n"
    )
    done(clean / "python", "-c", walk, cwd=tmp_path)


def test_none_of_our_folders_is_a_top_level_module(clean, tmp_path):
    probe = "from importlib.util import find_spec; import sys; print(*map(find_spec, sys.argv[1:]))"
    found = done(clean / "python", "-c", probe, *FOLDERS, "tests", "docs", cwd=tmp_path)
    assert set(found.split()) == {"None"}


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["tune", "--help"]])
def test_the_command_answers(clean, words, tmp_path):
    assert done(clean / "gpuadvisor", *words, cwd=tmp_path).strip()


def test_the_doctor_says_that_torch_is_missing(clean, tmp_path):
    doctor = run(clean / "gpuadvisor", "doctor", cwd=tmp_path, env={"GPUADVISOR_HOME": "home"})
    assert doctor.returncode == 1
    assert "pip install torch" in doctor.stdout, doctor.stdout + doctor.stderr


def test_tune_needs_a_python_with_torch_and_says_so(clean, tmp_path):
    (tmp_path / "train.py").touch()
    tune = run(clean / "gpuadvisor", "tune", "train.py", cwd=tmp_path)
    assert tune.returncode == 2
    assert "--python" in tune.stderr


def test_another_environments_torch_is_used(clean, tmp_path):
    pytest.importorskip("torch")
    words = ["doctor", "--python", sys.executable]
    doctor = done(clean / "gpuadvisor", *words, cwd=tmp_path, env={"GPUADVISOR_HOME": "home"})
    assert "Ready to tune" in doctor


BOTH = """
def test_ours(gpu_benchmark): assert gpu_benchmark(int, "7") == 7
def test_theirs(benchmark): assert benchmark(int, "7") == 7
def test_both(benchmark, gpu_benchmark): assert benchmark(int, "7") == gpu_benchmark(int, "7")
"""


def test_its_pytest_plugin_beside_others(clean, tmp_path):
    """pytest-benchmark and pytest-cov find their own options, and the first reads our results."""
    site = tmp_path / "site"
    tools = ["pytest", "pytest-benchmark", "pytest-cov", "pytest-xdist"]
    done(clean / "python", "-m", "pip", "install", "--target", site, *tools)
    (tmp_path / "test_it.py").write_text(BOTH)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    quick = ["--benchmark-max-time=0.01", "--gpu-benchmark-max-time=0.01"]
    written = ["--benchmark-json=theirs.json", "--gpu-benchmark-json=ours.json"]
    line = [clean / "python", "-m", "pytest", "--cov=test_it", *quick]
    env = {"PYTHONPATH": str(site), "GPUADVISOR_HOME": str(tmp_path)}
    said = done(*line, *written, cwd=tmp_path, env=env)
    assert "3 passed" in said and "gpu-benchmark: 2 tests" in said and "benchmark: 2 tests" in said
    ours, theirs = (json.loads((tmp_path / f"{n}.json").read_text()) for n in ("ours", "theirs"))
    assert ours.keys() == theirs.keys()
    for one, other in zip(ours["benchmarks"], theirs["benchmarks"], strict=True):
        assert one.keys() == other.keys() and one["stats"].keys() == other["stats"].keys()
    compare = [clean / "python", "-m", "pytest_benchmark", "compare", "ours.json", "theirs.json"]
    assert "test_ours" in done(*compare, cwd=tmp_path, env=env)
    refused = run(*line, "-n2", cwd=tmp_path, env=env)
    assert refused.returncode == 1 and "does not run under pytest-xdist" in refused.stdout
