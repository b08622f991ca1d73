"""The JSON of a profile and of a comparison is valid, complete and documented."""

import json
import re
from dataclasses import replace

import pytest

from gpuadvisor.reports import strict_json
from gpuadvisor.reports.json_documents import PROFILE_VERSION, comparison_json, profile_json
from gpuadvisor.rules.facts.comparison import compare
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.window import Fitness, Stretch
from tests.json_page import documented, leaves
from tests.profile_reports import H100, PROFILES, report, sampled, whole

PROFILE = documented("A profile as JSON")
COMPARISON = documented("A comparison as JSON")
PART = Fitness("Steps 5 to 8 are looked at", excerpt=Stretch(0, 4_000_000, 60, 600, 5, 8, 40))
EVERYTHING = profile_json(replace(report(whole()), facts=Facts(whole(), fitness=PART)))
COMPARED = comparison_json(compare(Facts(whole()), Facts(whole()), ("a", "b")))


def test_the_page_documents_every_field_and_no_other():
    found = dict(leaves(EVERYTHING)) | dict(leaves(profile_json(report(sampled()))))
    assert found.keys() == PROFILE.keys()


def test_the_page_documents_every_field_of_a_comparison():
    same = re.compile(r"^(after\.|kernels\[|operators\[|copies\[|parts\[\]\.after\.)")
    fields = {path for path, _ in leaves(COMPARED) if not same.match(path)}
    assert fields == COMPARISON.keys()


@pytest.mark.parametrize("fields", [PROFILE, COMPARISON], ids=["profile", "comparison"])
def test_every_field_has_type_meaning_and_null(fields):
    assert [field for field, cells in fields.items() if not all(cells) or len(cells) != 3] == []


@pytest.mark.parametrize("make", PROFILES.values(), ids=PROFILES)
def test_only_what_the_page_says_is_null(make):
    document = json.loads(
        strict_json.text(profile_json(report(make()))), parse_constant=pytest.fail
    )
    never = {field for field, cells in PROFILE.items() if cells[2] == "never"}
    assert {path for path, each in leaves(document) if each is None} & never == set()


def test_the_figures():
    document = json.loads(strict_json.text(profile_json(report(whole()))))
    assert document["schema_version"] == PROFILE_VERSION == 1
    assert document["devices"][0]["name"] == H100.name
    (time,) = document["time"]
    assert time["parts_ns"]["computing"] == 800_000
    assert time["parts_ns"]["waiting_for_data"] == 1_200_000
    assert sum(time["parts_ns"].values()) == time["span_ns"] == 4_000_000
    kernel = document["kernels"][0]
    assert (kernel["count"], kernel["grid"], kernel["block"]) == (4, [64, 2, 1], [128, 1, 1])
    assert (kernel["occupancy"], kernel["limiters"]) == (0.125, ["shared_memory"])
    assert kernel["kineto_occupancy_is_wrong"] is True
    assert document["steps"]["count"] == 4
    assert document["cpu_samples"] is None
    assert document["memory"][0]["peak_allocated_bytes"] == 2 << 20


def test_shares_of_cpu_samples_and_their_intervals():
    document = json.loads(strict_json.text(profile_json(report(sampled()))))["cpu_samples"]
    assert document["samples"] == 32
    (module,), (function,) = document["modules"], document["functions"]
    assert (module["module"], module["share"]) == ("libparse.so", 1.0)
    assert (function["module"], function["function"]) == ("libparse.so", "read_csv")
    # Wilson's lower end of all of n: n / (n + 1.96^2)
    assert function["low"] == pytest.approx(32 / (32 + 1.96**2))


def test_what_is_not_measured_is_named():
    document = profile_json(report(PROFILES["one point"]()))
    assert document["steps"] is None
    assert document["kernels"][0]["occupancy"] is None
    assert {"memory", "operators", "idle"} <= document["not_measured"].keys()
