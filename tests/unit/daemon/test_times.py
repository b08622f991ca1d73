"""Times as one types them, for tables and for the page of charts."""

import time
from datetime import datetime

import pytest

from gpuadvisor.daemon.history import moment
from gpuadvisor.errors import UsageError

NOW = datetime(2026, 11, 23, 15, 40, 10)  # a Monday


@pytest.fixture(autouse=True, params=["UTC", "Europe/Berlin"])
def zone(monkeypatch, request):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("14:02", datetime(2026, 11, 23, 14, 2)),
        ("15:40:11", datetime(2026, 11, 22, 15, 40, 11)),
        ("3:05:30", datetime(2026, 11, 23, 3, 5, 30)),
        ("today 23:00", datetime(2026, 11, 23, 23)),
        ("yesterday 03:00", datetime(2026, 11, 22, 3)),
        ("Yesterday", datetime(2026, 11, 22)),
        ("sunday 18:30", datetime(2026, 11, 22, 18, 30)),
        ("monday 18:30", datetime(2026, 11, 16, 18, 30)),
        ("now", NOW),
        ("90s", datetime(2026, 11, 23, 15, 38, 40)),
        ("17 min ago", datetime(2026, 11, 23, 15, 23, 10)),
        ("17m ago", datetime(2026, 11, 23, 15, 23, 10)),
        ("17 Minutes", datetime(2026, 11, 23, 15, 23, 10)),
        ("3h ago", datetime(2026, 11, 23, 12, 40, 10)),
        ("-90m", datetime(2026, 11, 23, 14, 10, 10)),
        ("2 days ago", datetime(2026, 11, 21, 15, 40, 10)),
        ("yesterday 14:00", datetime(2026, 11, 22, 14)),
        ("last night", datetime(2026, 11, 22, 22)),
        ("7d", datetime(2026, 11, 16, 15, 40, 10)),
        ("2026-01-31T18:00", datetime(2026, 1, 31, 18)),
        ("2026-01-31", datetime(2026, 1, 31)),
    ],
)
def test_a_time_is_what_one_means(given, meant):
    assert moment("since", given, NOW.timestamp()) == meant.timestamp()


@pytest.mark.parametrize(
    "given",
    [
        "",
        "tomorrow 03:00",
        "25:00",
        "12:60",
        "now 12:00",
        "13",
        "noon",
        "yesterday night",
        "-90",
        "3 ago",
        "5 apples ago",
    ],
)
def test_what_is_no_time_is_a_sentence_with_examples(given):
    with pytest.raises(UsageError, match="or a moment such as") as caught:
        moment("since", given, NOW.timestamp())
    assert "yesterday 03:00" in str(caught.value)
