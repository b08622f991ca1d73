"""Whatever numbers a file claims, a profile can be reported, compared and exported."""

import json

import numpy as np
import pytest

from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.profile import TABLES, Header
from gpuadvisor.profiling.exporting import export
from gpuadvisor.reports import strict_json
from gpuadvisor.reports.json_documents import comparison_json, profile_json
from gpuadvisor.reports.profile.comparison import (
    comparison_lines,
    comparison_markdown,
)
from gpuadvisor.reports.profile.document import profile_html, profile_markdown
from gpuadvisor.rules.facts.comparison import compare
from gpuadvisor.rules.facts.summary import Facts
from tests.diagnoses import DIAGNOSIS
from tests.profile_reports import H100, report
from tests.profiles import TEXT_COLUMNS

pytestmark = pytest.mark.slow

TEXTS = ("", "a<b>", "aten::mm", "[[1,2],[2,3]]", "x" * 300, "ncclKernel_AllReduce")
KINDS = {"direction", "source", "destination"}
"""Columns that readers fill with members of an enumeration only."""
FLOATS = (np.nan, np.inf, -1.0, 0.0, 1e300, 5.5)


def column(random, name, kind, count):
    if name in TEXT_COLUMNS:
        return random.integers(0, len(TEXTS), count).astype(kind)
    if name in KINDS:
        return random.integers(0, 6, count).astype(kind)
    if kind == "float64":
        return random.choice(FLOATS, count)
    limits = np.iinfo(kind)
    extremes = np.array([limits.min, limits.max, -1, 0, 1, limits.max // 2], kind)
    return (
        random.integers(-1, 6, count).astype(kind),
        random.choice(extremes, count),
        random.integers(0, min(limits.max, 10**6), count).astype(kind),
    )[random.integers(0, 3)]


def anything(seed):
    random = np.random.default_rng(seed)
    made = MemoryProfile()
    for table, columns in TABLES.items():
        count = int(random.choice([0, 1, 3, 40]))
        if count:
            rows = {name: column(random, name, kind, count) for name, kind in columns.items()}
            made.add(table, rows)
    devices = (H100,) if random.integers(2) else ()
    begin = int(random.choice([-(2**62), 0, 2**62]))
    made.finish(Header("kineto", texts=TEXTS, devices=devices, begin_unix_ns=begin))
    return made


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, where figures are absurd
@pytest.mark.parametrize("seed", range(20))
def test_anything(seed, tmp_path):
    profile = anything(seed)
    assert profile_html(report(profile)).endswith("</html>\n")
    assert profile_markdown(report(profile)).startswith("### ")
    json.loads(strict_json.text(profile_json(report(profile))), parse_constant=pytest.fail)
    found = compare(Facts(profile), Facts(anything(seed + 1000)), ("a", "b"))
    assert list(comparison_lines(found))
    assert comparison_markdown(found)
    json.loads(strict_json.text(comparison_json(found)), parse_constant=pytest.fail)
    export(Facts(profile), tmp_path / "out.json", DIAGNOSIS.findings)
    json.loads((tmp_path / "out.json").read_text("ascii"), parse_constant=pytest.fail)
