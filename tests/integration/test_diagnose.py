"""`gpuadvisor diagnose` and what leads to it, on real traces and on a script, as users run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.program import run

DATA = Path(__file__).parents[1] / "data" / "profiles"
WAITING = DATA / "h100_small_cnn_train.json.gz"
SLOW_LOADER = """
import time, torch

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.01)  # much more than the rest of a step, also on a slow machine
        return torch.ones(8), index % 2

model = torch.nn.Linear(8, 2)
for inputs, labels in torch.utils.data.DataLoader(Samples(), batch_size=8):
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
"""


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """A trace that is read without storing it, with every output that there is."""
    folder = tmp_path_factory.mktemp("home")
    answer = run(
        folder, "diagnose", str(WAITING), "--json", "--markdown", "d.md", "--sarif", "d.sarif",
        "--fail-on", "critical", folder=folder,
    )  # fmt: skip
    return folder, answer


def test_a_real_trace_is_diagnosed_without_storing_it(read, here):
    folder, answer = read
    told = json.loads(answer.out)
    first = told["findings"][0]
    assert (first["rule"], first["hidden_by"]) == ("input_bound", None)
    assert "dataloader_workers" in first["knobs"]
    assert told["failed"] == []
    assert (told["profile"], told["file"]) == (None, str(WAITING))
    assert json.loads(here(folder, "import", "--list", "--json").out)["profiles"] == []


def test_every_document_of_it_is_there(read):
    folder, answer = read
    assert (folder / "d.md").read_text("utf-8").startswith("### `h100_small_cnn_train`")
    assert json.loads((folder / "d.sarif").read_text("utf-8"))["version"] == "2.1.0"
    assert answer.err.count("wrote ") == 2


def test_ci_sees_what_is_critical(read):
    _, answer = read
    critical = [each for each in json.loads(answer.out)["findings"]
                if each["severity"] == "critical" and each["hidden_by"] is None]  # fmt: skip
    assert answer.status == (4 if critical else 0)
    assert ("at critical or above: " in answer.err) is bool(critical)


@pytest.mark.parametrize("file", ["a10g_gemm_esmm_a.raw.csv", "a100_cloverleaf.sqlite"])
def test_other_tools_files_are_diagnosed_too(file, here, tmp_path):
    import gzip

    (tmp_path / file).write_bytes(gzip.decompress((DATA / f"{file}.gz").read_bytes()))
    answer = here(tmp_path, "diagnose", file, "--json")
    assert answer.status == 0, answer.err
    told = json.loads(answer.out)
    assert told["failed"] == []
    assert told["source"] == {"csv": "ncu", "sqlite": "nsys"}[file.rpartition(".")[2]]


def test_the_report_and_the_exported_trace_say_it_too(here, tmp_path):
    assert (
        here(tmp_path, "report", str(WAITING), "--html", "p.html", "--markdown", "p.md").status == 0
    )
    assert "What to fix first" in (tmp_path / "p.html").read_text("utf-8")
    assert "#### What to fix first" in (tmp_path / "p.md").read_text("utf-8")
    assert here(tmp_path, "export", str(WAITING), "-o", "out.json").status == 0
    assert '"name": "1. input_bound"' in (tmp_path / "out.json").read_text("ascii")


def test_a_script_is_profiled_kept_and_diagnosed(tmp_path, here):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SLOW_LOADER)
    answer = run(tmp_path, "diagnose", "train.py", "--steps", "3", "--name", "slow", "--", "--x")
    assert answer.status == 0, answer.err
    lines = answer.out.splitlines()
    assert lines[0].startswith("slow: 3 steps of ")
    assert lines[3].endswith(": input_bound")
    assert "a DataLoader with 0 workers" in answer.out
    # One more step was recorded with stacks: the line where a sample is made.
    assert "where     the run, train.py:8 in __getitem__" in answer.out
    command = "gpuadvisor tune train.py --only dataloader_workers -- --x"
    assert any(line.endswith(command) for line in lines)
    assert lines[-1] == "Kept as slow: `gpuadvisor report slow` has all figures."
    again = here(tmp_path, "profile", "train.py", "--name", "slow")
    assert again.status == 2, "the name is taken"
