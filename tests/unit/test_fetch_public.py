"""Public scripts are fetched at their commit, also from a copy that lacks all else."""

import subprocess

import pytest

from tests.benchmark_files import loaded

module = loaded("fetch_public")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a bare repository of one commit that has lost the content of a large file."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path / "work")]
    (tmp_path / "work" / "sub").mkdir(parents=True)
    for name in ("train.py", "sub/model.py", "large.bin", "sub/large.bin"):
        (tmp_path / "work" / name).write_text(name)
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)

    def said(*words):
        return subprocess.run([*git, *words], check=True, capture_output=True, text=True).stdout

    commit = said("rev-parse", "HEAD").strip()
    bare = tmp_path / "made+here"
    subprocess.run(["git", "clone", "-q", "--bare", tmp_path / "work", bare], check=True)
    for name in ("large.bin", "sub/large.bin"):
        blob = said("rev-parse", f"HEAD:{name}").strip()
        (bare / "objects" / blob[:2] / blob[2:]).unlink()
    wanted = tmp_path / "wanted.toml"
    wanted.write_text(
        f'[repository."made/here"]\ncommit = "{commit}"\npaths = ["*.py", "sub/*.py"]\n'
    )
    monkeypatch.setattr(module, "SCRIPTS", wanted)
    return bare


def test_what_is_wanted_is_read_from_a_copy_without_the_rest(repository, tmp_path):
    before = sorted(each.name for each in repository.iterdir())
    module.fetch(tmp_path / "all", "made/here", f"{tmp_path}/{{owner}}+{{name}}")
    found = tmp_path / "all" / "made+here"
    files = {str(each.relative_to(found)) for each in found.rglob("*") if each.is_file()}
    assert files == {"train.py", "sub/model.py"}
    assert (found / "sub" / "model.py").read_text() == "sub/model.py"
    assert sorted(each.name for each in repository.iterdir()) == before


def test_what_could_not_be_fetched_whole_is_fetched_again(repository, tmp_path):
    wanted = module.SCRIPTS.read_text()
    module.SCRIPTS.write_text(wanted.replace('"sub/*.py"', '"large.bin"'))
    with pytest.raises(subprocess.CalledProcessError):
        module.fetch(tmp_path / "all", "made/here", f"{tmp_path}/{{owner}}+{{name}}")
    module.SCRIPTS.write_text(wanted)
    module.fetch(tmp_path / "all", "made/here", f"{tmp_path}/{{owner}}+{{name}}")
    assert (tmp_path / "all" / "made+here" / "train.py").exists()


def test_every_script_names_a_repository_and_data_that_can_be_made(tmp_path):
    for script in module.scripts(tmp_path).values():
        assert script.about.get("data", {}).keys() <= module.MAKERS.keys()
        assert script.words(False)[0] == script.words(True)[0] == script.about["script"]
        assert f"cd {script.folder}" in list(script.start(True))
