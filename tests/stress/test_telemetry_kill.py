"""The telemetry store keeps what it acknowledged, whenever its writer is killed."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("telemetry_kill.py")


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_lost():
    words = [sys.executable, str(PROGRAM), "--kills", "3", "--readers", "1", "--alone", "1"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "lost: 0, twice: 0, torn: 0" in run.stdout
