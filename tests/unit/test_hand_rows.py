"""Rows of the table "By hand" grow from call to call: what is there is not made again."""

import json
import sys
import threading
import time

import pytest

from tests.benchmark_files import loaded

module = loaded("hand_rows")
LONG_S = 600.0


@pytest.fixture
def known(tmp_path):
    """Return the public scripts by name, with a folder where their code would be."""
    found = module.scripts(tmp_path / "public")
    for script in found.values():
        script.folder.mkdir(parents=True, exist_ok=True)
    return found


@pytest.fixture
def call(tmp_path, known):
    """Return what runs lines of Python as tasks, named after script and number."""

    def made(lines, gpus=()):
        tasks = [
            module.Task(known[name.split()[0]], name, 0.0,
                        lambda left_s, line=line: ["-c", line], tmp_path / f"{name}.txt")
            for name, line in lines.items()
        ]  # fmt: skip
        until_s = time.monotonic() + LONG_S
        return module.Call(tasks, until_s, tmp_path / "public", sys.executable, gpus)

    return made


def test_two_tasks_of_a_script_never_run_at_once(call, tmp_path):
    line = f"""import os, pathlib
place = pathlib.Path({str(tmp_path)!r}, pathlib.Path.cwd().name)
place.open("x").write("here")
print("on", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
place.unlink()"""
    names = ["imagenet 1", "imagenet 2", "dcgan 1", "dcgan 2", "dlrm 1"]
    made = call(dict.fromkeys(names, line), ["3", "5"])
    made.run()
    assert made.tasks == [] and made.failed == []
    for name in names:
        number, *said = (tmp_path / f"{name}.txt").read_text().split()
        assert float(number) >= 0 and said in (["on", "3"], ["on", "5"])


def test_what_fails_is_told_and_keeps_no_other_from_its_turn(call, capsys):
    made = call({"imagenet 1": "raise SystemExit('because')", "imagenet 2": "print('fine')"})
    made.run()
    assert made.failed == ["imagenet 1"]
    said = capsys.readouterr().out
    assert "imagenet 1: status 1" in said and "because" in said
    assert "imagenet 2: status 0" in said and "fine" in said


def test_a_task_is_told_to_end_with_the_call_and_has_not_failed(call, tmp_path):
    line = f"""import time
try:
    print("begun", flush=True)
    time.sleep({LONG_S})
except KeyboardInterrupt:
    print("told")"""
    made, log = call({"imagenet 1": line, "imagenet 2": line}), tmp_path / "imagenet 1.txt"
    running = threading.Thread(target=made.run)
    running.start()
    until_s = time.monotonic() + LONG_S
    while not (log.exists() and "begun" in log.read_text()) and time.monotonic() < until_s:
        time.sleep(0.02)
    made.stopped.set()
    running.join()
    assert made.failed == [] and [each.name for each in made.tasks] == ["imagenet 2"]
    assert "told" in log.read_text()


def test_a_script_that_chooses_its_gpu_waits_for_that_one(call):
    made = call({"voxceleb 1": "print()", "imagenet 1": "print()"}, ["1"])
    made.run()
    assert [each.name for each in made.tasks] == ["voxceleb 1"]


def test_studies_are_made_once_for_each_script_and_budget(known, tmp_path):
    chosen = [known["imagenet"], known["gin"]]

    def left():
        return {each.name: each for each in module.studies(chosen, tmp_path, ["rest", "5m"], False)}

    tasks = left()
    assert list(tasks) == ["imagenet rest", "gin rest", "imagenet 5m", "gin 5m"]
    assert tasks["gin rest"].least_s == module.LEAST_REST_S and tasks["gin 5m"].least_s == 300
    words = tasks["gin rest"].words(520.0)
    assert words[words.index("--budget") + 1] == "515s" and words[-2:] == ["mutag_gin.py", "--"]
    for name, status, said in (
        ("gin rest", 0, {"verdict": "no_gain"}),
        ("gin 5m", 130, {"verdict": "no_gain", "interrupted": "interrupted"}),
        ("imagenet 5m", 3, None),
    ):
        result = tasks[name].result
        result.parent.mkdir(parents=True)
        result.write_text(json.dumps(said) if said else "")
        tasks[name].done(status)
    folder = tmp_path / "hand" / "gin"
    assert json.loads((folder / "rest" / "about.json").read_text()) == {"budget": "515s"}
    assert not (folder / "5m" / "study.json").exists() and (folder / "5m" / "cut.json").exists()
    assert list(left()) == ["imagenet rest", "imagenet 5m", "gin 5m"]


def test_a_search_that_is_over_goes_on_only_with_more_time(known, tmp_path):
    ends = {"gin": (True, ""), "vae": (False, ""), "dcgan": (True, "alone")}
    chosen = [known[name] for name in ends]
    for script, (finished, cut) in zip(chosen, ends.values(), strict=True):
        folder = module.folder_of(tmp_path, script)
        folder.mkdir(parents=True)
        found = {"finished": finished, "cut": cut, "allowed_s": 900.0}
        (folder / "runs.json").write_text(json.dumps(found))
    tasks = list(module.searches(chosen, tmp_path, 900.0, False))
    assert [each.name for each in tasks] == ["vae search"]
    assert tasks[0].words(400.0)[-4:] == ["--call-seconds", "395", "--", "main.py"]
    more = module.searches(chosen, tmp_path, 901.0, False)
    assert [each.name for each in more] == ["vae search", "dcgan search"]


def test_what_cannot_be_compared_yet_is_named(known, tmp_path, capsys):
    assert list(module.comparisons([known["gin"]], tmp_path, False)) == []
    assert "gin: not compared: " in capsys.readouterr().out


def test_scripts_that_cannot_run_here_are_named(known, tmp_path):
    lacking = dict(known["gin"].about, packages=["torch-of-nobody", "pytest"])
    script = module.Script(tmp_path / "public", "pyg-team/pytorch_geometric", lacking)
    elsewhere = module.Script(tmp_path / "none", "pytorch/examples", known["vae"].about)
    why = module.unready([known["imagenet"], script, elsewhere])
    assert why.keys() == {"gin", "vae"}
    assert why["gin"] == "torch-of-nobody is not installed"
    assert "its code is not in" in why["vae"]
