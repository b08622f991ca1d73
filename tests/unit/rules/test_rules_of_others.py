"""Rules of other packages, installed as pip installs them: the documentation's own example."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "templates" / "rules.md").read_text("utf-8")
EXAMPLE = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
POINTS = {
    "checkpoint_every_step": "others.checkpoint_every_step",
    "broken": "others.broken",
    "missing": "others.no_such_module",
    "no_rule": "others",
    "input_bound": "others.checkpoint_every_step",
}
ASK = """
import json, sys
from gpuadvisor.profiling.rules import select_rules
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from tests.profiles import Made
from tests.rules.building import timeline

made = Made()
made.launched("kernel", call=(0, 5), runs=(10, 9000))
made.operator("save", (0, 3000))
rules = {rule.name: rule for rule in (*select_rules(), *select_rules())}
mine = rules["checkpoint_every_step"]
(found,) = diagnose(timeline(made), [mine]).findings
print(json.dumps({
    "names": [name for name in rules if name in POINTS],
    "title": mine.title, "page": mine.page, "severity": str(found.severity),
    "ours": rules["input_bound"].check.__module__,
}))
"""


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    """What a process says that finds such a package on its path."""
    site = tmp_path_factory.mktemp("site")
    package, info = site / "others", site / "others-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text("")
    (package / "checkpoint_every_step.py").write_text(EXAMPLE)
    (package / "checkpoint_every_step.md").write_text("# checkpoint_every_step: a page\n")
    (package / "broken.py").write_text("raise RuntimeError('half\\nwritten')\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    points = "".join(f"{name} = {module}\n" for name, module in POINTS.items())
    (info / "entry_points.txt").write_text(f"[gpuadvisor.rules]\n{points}")
    path = os.pathsep.join([str(site), str(Path(__file__).parents[3])])
    script = f"POINTS = {list(POINTS)!r}\n{textwrap.dedent(ASK)}"
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def test_a_rule_of_another_package_is_a_rule(answer):
    told = json.loads(answer.stdout)
    assert told["title"] == "The script writes a checkpoint in every step"
    assert told["page"] == "# checkpoint_every_step: a page\n"
    assert told["severity"] == "warning"


def test_one_that_cannot_be_used_is_left_out_with_one_warning_each(answer):
    assert set(json.loads(answer.stdout)["names"]) == {"checkpoint_every_step", "input_bound"}
    lines = answer.stderr.splitlines()
    assert len(lines) == 4, answer.stderr
    assert (
        "gpuadvisor: the rule broken of others cannot be used (RuntimeError: half written): ignored"
    ) in lines
    assert any(line.startswith("gpuadvisor: the rule missing of others cannot") for line in lines)
    assert any("others is no rule: it needs a RULE" in line for line in lines)


def test_none_takes_the_name_of_ours(answer):
    assert json.loads(answer.stdout)["ours"] == "gpuadvisor.rules.catalogue.input_bound"
    assert "gpuadvisor: others has a rule input_bound, but that name is taken: ignored" in (
        answer.stderr
    )
