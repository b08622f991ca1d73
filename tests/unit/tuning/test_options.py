"""What a user may ask for."""

import pytest

from gpuadvisor.errors import UsageError
from gpuadvisor.tuning.options import Budget, check_knob_names


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("90s", 90, "90s"),
        ("10m", 600, "10m"),
        (" 10 M ", 600, "10m"),
        ("1h", 3600, "60m"),
        ("1h30m", 5400, "90m"),
        ("1h 30m", 5400, "90m"),
        ("1.5h", 5400, "90m"),
        ("0.5s", 0.5, "0.5s"),
    ],
)
def test_time(text, seconds, shown):
    assert Budget.parse(text) == Budget(seconds=seconds)
    assert str(Budget.parse(text)) == shown


@pytest.mark.parametrize("text", ["30 trials", "30trials", "30", "30 TRIALS", "30 trial"])
def test_trials(text):
    assert Budget.parse(text) == Budget(trials=30)
    assert str(Budget.parse(text)) == "30 trials"


@pytest.mark.parametrize(
    "text",
    (
        *("", "x", "0", "0m", "0 trials", "-5m", "1.5 trials", "10 minutes", "m", "1d", "1e3s"),
        *("inf", "nan", "10m!", "1 0m", "9" * 19 + "h", "9" * 5000, "9" * 5000 + "s", "10m30"),
        *("1h30", "1000000 trials", "10m" + " " * 50 + "10m"),
    ),
)
def test_nonsense(text):
    with pytest.raises(UsageError, match=r"write 90s, 10m, 1h30m, or '30 trials'$"):
        Budget.parse(text)


def test_unknown_knobs():
    known = {"bf16_autocast": 1, "compile": 2}
    check_knob_names(frozenset(), known, "--only")
    check_knob_names(frozenset(known), known, "--only")
    with pytest.raises(UsageError, match=r"--only bf16: .*did you mean bf16_autocast"):
        check_knob_names(frozenset({"bf16"}), known, "--only")
    with pytest.raises(UsageError, match="there are: bf16_autocast, compile"):
        check_knob_names(frozenset({"zzz"}), known, "--without")
