"""The telemetry store keeps what it acknowledged, whenever its writer is killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("telemetry_kill.py")


KILLS = int(os.environ.get("KILLS", "3"))
"""`KILLS=200 pytest -m slow tests/stress/test_telemetry_kill.py` takes some ten minutes."""


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_lost():
    words = [sys.executable, str(PROGRAM), "--kills", str(KILLS), "--readers", "1"]
    timeout_s = 120 + 5 * KILLS
    run = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{KILLS} kills over" in run.stdout
