"""The tree of modules as lines."""

from dataclasses import replace

from gpuadvisor.reports.profile.modules import NONE, module_tree
from gpuadvisor.rules.facts.summary import Facts
from tests.diagnoses import DIAGNOSIS, diagnosis_report
from tests.profile_reports import report, whole
from tests.unit.rules.facts.test_places import two_layers


def test_each_module_stands_below_the_one_that_calls_it():
    stacked = Facts(two_layers().profile())
    diagnosed = replace(diagnosis_report(report(whole()), DIAGNOSIS), stacked=stacked)
    title, head, *rows, last = module_tree(diagnosed)
    assert title.startswith("Modules")
    assert head.split() == ["time", "GPU", "backward", "GPU", "idle", "calls", "module"]
    assert {row.split()[-1] for row in rows[1:]} == {"Linear_0", "Linear_1"}
    assert rows[0].endswith("  Net_0")
    assert all("    Linear_" in row for row in rows[1:])
    assert "one step with stacks" in last


def test_without_modules_it_says_how_to_record_them():
    assert list(module_tree(diagnosis_report(report(whole()), DIAGNOSIS))) == [NONE]
