"""What a script reads that an earlier run of it wrote."""

import json
import os
import subprocess
import sys

import pytest

WATCH = """
import json, os, sys
from gpuadvisor.collectors.script.child.file_reads import stop_watching, watch_reads
for text in json.loads(sys.argv[1]):
    if os.fork():
        assert os.wait()[1] == 0
        continue
    found = []
    watch_reads((1000.0, 2000.0), found.append)
    exec(text)
    print(json.dumps(found), flush=True)
    os._exit(0)
"""

CASES = [
    ("open('last.pt').close()", ["last.pt"]),
    ("open(b'last.pt').close()", ["last.pt"]),
    ("open(os.path.abspath('runs/a.pt'), 'rb').close()", ["runs/a.pt"]),
    ("os.close(os.open('last.pt', os.O_RDONLY))", ["last.pt"]),
    ("import pathlib; pathlib.Path('last.pt').read_text()", ["last.pt"]),
    ("import torch; torch.load('weights.pt')", ["weights.pt"]),
    ("import numpy; numpy.load('array.npy')", ["array.npy"]),
    ("open('last.pt').close(); open('last.pt').close()", ["last.pt"]),
    ("stop_watching(); open('last.pt').close()", []),
    ("open('last.pt', 'a').close()", []),
    ("open('last.pt', 'r+').close()", []),
    ("open('before').close(); open('since').close()", []),
    ("open('code.py').close(); open('.cache/kernel').close()", []),
    ("os.chdir('runs'); open('a.pt').close()", ["runs/a.pt"]),
    ("open('../outside').close(); open(0, closefd=False); os.listdir('.')", []),
    ("\ntry: open('missing')\nexcept FileNotFoundError: pass", []),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import numpy
    import torch

    made = tmp_path_factory.mktemp("reads") / "work"
    times = {"before": 900, "since": 2500}
    names = "last.pt runs/a.pt before since code.py .cache/kernel ../outside weights.pt array.npy"
    for name in names.split():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("1")
    torch.save({}, made / "weights.pt")
    numpy.save(made / "array.npy", numpy.zeros(1))
    for name in names.split():
        os.utime(made / name, (times.get(name, 1500),) * 2)
    return made


@pytest.fixture(scope="module")
def noticed(folder):
    """What is noticed of each text, each in a process of its own."""
    command = [sys.executable, "-c", WATCH, json.dumps([text for text, _ in CASES])]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    return dict(zip((text for text, _ in CASES), lines, strict=True))


@pytest.mark.parametrize(("text", "found"), CASES)
def test_what_is_noticed(noticed, text, found):
    assert noticed[text] == found
