"""A rehearsal holds as long as all that it rests on is the same, and no longer."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.storage import codec
from gpuadvisor.tuning.plans import premises as room
from gpuadvisor.tuning.plans.premises import difference, premises, without
from tests.studies import environment

ENVIRONMENT = environment()


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository with a script that uses modules beside its own folder."""
    monkeypatch.delenv("PYTHONPATH", raising=False)  # folders there count as well
    for name in (
        *(".git/HEAD", "scripts/train.py", "src/model.py", "kernels/scan.cu", "conf/base.yaml"),
        *("data/1.jpg", "venv/pyvenv.cfg", "venv/lib.py", "src/__pycache__/model.py"),
    ):
        write(tmp_path / "project", name, name)
    return tmp_path / "project"


def write(project, name, text="changed"):
    path = Path(project, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def found(project, *args, environment=ENVIRONMENT, tolerance=0.01, seed=0, **changes):
    command = Command("python", "scripts/train.py", args, folder=str(project))
    return premises(replace(command, **changes), environment, tolerance, seed)


def test_nothing_differs_where_nothing_changed(project):
    assert difference(found(project), found(project)) is None
    assert set(found(project).code) == {"scripts/train.py", "src/model.py", "kernels/scan.cu"}
    assert set(found(project).configuration) == {"conf/base.yaml"}


def test_a_copy_elsewhere_is_the_same(project):
    then = found(project)
    assert difference(then, found(project.rename(project.with_name("moved")))) is None


def test_it_is_the_same_after_it_was_stored(project):
    then = found(project, "--name", "caf\udce9")
    stored = codec.loads(type(then), codec.dumps(then))
    assert difference(stored, found(project, "--name", "caf\udce9")) is None


@pytest.mark.parametrize("name", ["scripts/train.py", "src/model.py", "kernels/scan.cu"])
def test_changed_code(project, name):
    then = found(project)
    write(project, name)
    assert difference(then, found(project)) == f"{name} has changed"


def test_code_that_is_gone_or_new(project):
    then = found(project)
    write(project, "src/torch.py")  # would be imported in the place of the library
    now = found(project)
    assert difference(then, now) == "src/torch.py is new"
    assert difference(now, then) == "src/torch.py is gone"


def test_new_code_that_nothing_loads(project):
    then = found(project)
    write(project, "runs/7/files/train.py")  # a copy, as trackers make it
    assert difference(then, found(project)) is None
    write(project, "src/layers/attention.py")
    assert difference(then, found(project)) == "src/layers/attention.py is new"


def test_caches_are_not_looked_into(project, monkeypatch):
    then = found(project)
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / "src" / "cache"))
    write(project, "src/cache/kernel.py")
    assert difference(then, found(project)) is None


def test_several_changes(project):
    then = found(project)
    for name in ("scripts/train.py", "src/model.py", "conf/base.yaml"):
        write(project, name)
    changed = difference(then, found(project))
    assert changed == "scripts/train.py has changed, and 2 more files are not the same"


def test_changed_configuration(project):
    then = found(project)
    write(project, "conf/metrics.json")  # as scripts write them: nobody read it
    write(project, "data/2.jpg")
    assert difference(then, found(project)) is None
    write(project, "conf/base.yaml")
    assert difference(then, found(project)) == "conf/base.yaml has changed"


def test_a_configuration_that_an_argument_names(project, tmp_path):
    own = write(tmp_path, "elsewhere/own.yaml")
    then = found(project, f"--config={own}", "--config", "no/such.yaml", "\0")
    write(tmp_path, "elsewhere/own.yaml", "batch_size: 1")
    now = found(project, f"--config={own}", "--config", "no/such.yaml", "\0")
    assert difference(then, now) == f"{own} has changed"


def test_what_each_run_writes_anew_does_not_count(project):
    write(project, "last.json", "1")
    command = Command("python", "scripts/train.py", folder=str(project))
    then = without(found(project), command, ("last.json", "other.pt"))
    write(project, "last.json", "2")
    assert difference(then, found(project)) is None


def test_plans_are_no_configuration(project):
    write(project, "train.plan.toml", room.FIRST_LINE)
    assert set(found(project).configuration) == {"conf/base.yaml"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"torch": "2.8.0"}, "torch: 2.8.0 now, 2.7.1+cu126 then"),
        ({"python": "3.13.0"}, "Python: 3.13.0 now, 3.12.3 then"),
        ({"gpuadvisor": "0.2.0"}, "gpuadvisor: 0.2.0 now, 0.1.0 then"),
        ({"cudnn": None}, "cuDNN: not known now, 9.5.1 then"),
        (
            {"device": replace(ENVIRONMENT.device, kind="cpu", name="EPYC")},
            "device: cpu, EPYC now, cuda, NVIDIA H100 80GB HBM3 then",
        ),
    ],
)
def test_other_versions_and_devices(project, changes, words):
    here = replace(ENVIRONMENT, **changes)
    assert difference(found(project), found(project, environment=here)) == words


def test_other_packages(project):
    command = Command("python", "scripts/train.py", folder=str(project))
    then, now = (
        premises(command, ENVIRONMENT, 0.01, 0, packages)
        for packages in (
            ("numpy-2.1", "torch-2.7"),
            ("numpy-2.2", "torch-2.7", "a-1", "b-1", "c-1"),
        )
    )
    assert difference(then, now) == "packages: a-1, b-1, c-1 and 1 more now, numpy-2.1 then"
    assert difference(then, found(project)) == "packages: none now, numpy-2.1, torch-2.7 then"


def test_packages_that_are_installed_from_source(project, tmp_path):
    helper = write(tmp_path, "own/src/own/helper.py")
    command = Command("python", "scripts/train.py", folder=str(project))
    then = premises(command, ENVIRONMENT, 0.01, 0, editable=[str(tmp_path / "own")])
    helper.write_text("other")
    now = premises(command, ENVIRONMENT, 0.01, 0, editable=[str(tmp_path / "own")])
    assert difference(then, now) == f"{helper} has changed"


def test_what_does_not_matter(project):
    here = replace(ENVIRONMENT, driver="600", sm_clock_mhz=1, git_commit="other", git_dirty=True)
    assert difference(found(project), found(project, environment=here)) is None


def test_other_arguments_tolerance_seed_script_and_folder(project):
    then = found(project)
    write(project, "scripts/other.py")
    for now, word in (
        (found(project, "--epochs", "3"), "arguments: --epochs 3 now, none then"),
        (found(project, tolerance=0.1), "tolerance: 0.1 now, 0.01 then"),
        (found(project, seed=1), "seed: 1 now, 0 then"),
        (found(project, script="scripts/other.py"), "script: scripts/other.py now"),
        (found(project / "scripts", script="train.py"), "working directory: scripts now, . then"),
    ):
        assert difference(then, now).startswith(word)


def test_modules_on_the_search_path(project, tmp_path, monkeypatch):
    helper = write(tmp_path, "lib/package/helper.py")
    (tmp_path / "link").symlink_to("lib")
    monkeypatch.setenv("PYTHONPATH", f"no/such/folder:{tmp_path / 'link'}")
    then = found(project)
    helper.write_text("other")
    assert difference(then, found(project)) == f"{helper} has changed"


def test_code_behind_a_link(project, tmp_path):
    helper = write(tmp_path, "lib/package/helper.py")
    data = write(tmp_path, "images/deep/not_looked_at.py").parent.parent
    (project / "package").symlink_to(helper.parent)
    (project / "again").symlink_to(project)
    (project / "data" / "train").symlink_to(data)
    then = found(project)
    assert not any("not_looked_at" in name for name in then.code)
    helper.write_text("other")
    assert "helper.py has changed" in difference(then, found(project))


@pytest.mark.parametrize("limit", ["MOST_FILES", "LONGEST_S"])
def test_files_that_are_too_many_to_look_at(project, limit, monkeypatch):
    then = found(project)
    monkeypatch.setattr(room, limit, 0)
    now = found(project)
    for before, after in ((then, now), (now, then), (now, now)):
        assert "whether its files are the same cannot be told" in difference(before, after)


def test_a_folder_that_is_gone(project, monkeypatch):
    monkeypatch.chdir(project)
    for path in sorted(project.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    project.rmdir()
    now = premises(Command("python", "train.py"), ENVIRONMENT, 0.01, 0)
    assert "cannot be told" in difference(now, now)
    assert without(now, Command("python", "train.py"), ("a",)) == now


def test_a_folder_of_many_configurations_holds_data(project, monkeypatch):
    monkeypatch.setattr(room, "MOST_CONFIGURATIONS", 0)
    assert found(project).configuration == {}


def test_modules(project):
    own = found(project, script="scripts.train", is_module=True)
    assert difference(own, found(project, script="scripts.train", is_module=True)) is None
    elsewhere = found(project, script="lightning.run", is_module=True)
    assert "the module lightning.run does not lie in" in difference(elsewhere, elsewhere)
