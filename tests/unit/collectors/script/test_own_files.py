"""A file's branches are judged by what the script's other files say."""

from __future__ import annotations

import textwrap

import pytest

from gpuadvisor.collectors.script.child.shortening.loop_imports import OwnFiles
from gpuadvisor.collectors.script.child.shortening.loop_rewriting import rewrite

MAIN = """\
    for epoch in range(9):
        for batch in loader:
            loss = step(batch)
        """
SET = """\
    class Set:
        def __getitem__(self, i): return self.level
        def harder(self): self.level = 2
    """
FILES = {
    "a function": {
        "train.py": "from helpers import harder\nloader = DataLoader(data)\n",
        "late": "if loss < 0.1: harder(data)",
        "helpers.py": "def harder(x): x.level = 2\n",
    },
    "a module's function": {
        "train.py": "import tools.helpers as h\nloader = DataLoader(data)\n",
        "late": "if loss < 0.1: h.harder(data)",
        "tools/helpers.py": "def harder(x): x.level = 2\n",
    },
    "a method": {
        "train.py": "from sets import Set\ndata = Set()\nloader = DataLoader(data)\n",
        "late": "if loss < 0.1: print(data.harder())",
        "sets.py": textwrap.dedent(SET),
    },
    "a branch": {
        "train.py": "import helpers\nloader = DataLoader(data)\n",
        "late": "helpers.after(data, loss)",
        "helpers.py": "def after(x, loss):\n    if loss < 0.1: x.level = 2\n",
    },
    "settings": {
        "train.py": "import settings\nimport sets\nloader = DataLoader(sets.Set())\n",
        "late": "if loss < 0.1: settings.LEVEL = 2",
        "settings.py": "LEVEL = 1\n",
        "sets.py": "import settings\nclass Set:\n"
        "    def __getitem__(self, i): return settings.LEVEL\n",
    },
    "a package": {
        "train.py": "from kit import harder\nloader = DataLoader(data)\n",
        "late": "if loss < 0.1: harder(data)",
        "kit/__init__.py": "from .parts import harder\n",
        "kit/parts.py": "def harder(x): x.level = 2\n",
    },
}


def marks(folder, files, late):
    files = files | {"train.py": files["train.py"] + textwrap.dedent(MAIN) + f"    {late}\n"}
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    own = OwnFiles(lambda path: path.startswith(str(folder)))
    # The script is loaded first, then what it imports.
    done = [rewrite((folder / each).read_bytes(), str(folder / each), read=own.read)
            for each in files]  # fmt: skip
    return [(mark.place, mark.what) for each in done for mark in each.marks if "0.1" in mark.what]


@pytest.mark.parametrize("case", FILES)
def test_effects_in_another_file(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    files = dict(FILES[case])
    late = files.pop("late")
    place = "helpers.py, line 2" if case == "a branch" else "train.py, line "
    ((where, what),) = marks(tmp_path, files, late)
    assert where.startswith(place) and what == "loss < 0.1"


def test_what_is_no_python_or_not_the_script_s_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"train.py": "import broken, json\n", "broken.py": "def (:\n"}
    (tmp_path / "broken.py").write_text(files.pop("broken.py"))
    assert marks(tmp_path, files, "if loss < 0.1: json.loads(loss)") == []


def test_an_option_of_another_file_s_function_is_no_late_branch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {
        "train.py": "from helpers import end\nloader = DataLoader(data)\n",
        "helpers.py": "def end(x, level):\n    if level > 0.1: x.level = level\n",
    }
    assert marks(tmp_path, files, "end(data, 0.1)") == []
