"""`gpuadvisor diagnose` and `explain`: what they take, what they ask, how they end."""

import json
import re
from dataclasses import replace

import pytest

from gpuadvisor import cli
from gpuadvisor.collectors.telemetry.recording import Recorder
from gpuadvisor.domain.profile import TABLES, Range
from gpuadvisor.domain.telemetry import Gpu
from gpuadvisor.domain.telemetry_window import GpuWindow, TelemetryWindow
from gpuadvisor.profiling import evidence as gathering
from gpuadvisor.profiling.evidence import HarnessEvents, environment, evidence_of
from gpuadvisor.profiling.resolving import ResolvedProfile, resolve_profile
from gpuadvisor.rules.facts import excerpt
from gpuadvisor.rules.facts.excerpt import events
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.registry import load_rules
from gpuadvisor.storage.profiles.library import open_profiles
from gpuadvisor.storage.profiles.writer import Origin
from tests.profile_reports import H100, steps, whole
from tests.profiles import Made
from tests.telemetry import frame, sample


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A store and a current folder of its own."""
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keep(name, profile=None, ranks_of="", rank=None):
    profile = profile or whole()
    with open_profiles() as profiles:
        origin = Origin(f"/data/{name}.json", 1, f"{name:0<64}", name, name, ranks_of)
        with profiles.writer(origin) as writer:
            for table in TABLES:
                if profile.rows(table):
                    writer.add(table, profile.columns(table))
            writer.finish(replace(profile.header, rank=rank))


def run(capsys, *words):
    status = cli.main(list(words))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


# -- diagnose ----------------------------------------------------------------------------------


def test_the_newest_profile_by_default(capsys):
    keep("older")
    keep("newer")
    status, out, _ = run(capsys, "diagnose", "--json")
    assert status == 0
    assert json.loads(out)["profile"] == "newer"


def test_a_stored_profile_by_its_name(capsys):
    keep("older")
    keep("newer")
    status, out, _ = run(capsys, "diagnose", "older")
    assert out.startswith("older: 4 steps in 4.00 ms on NVIDIA H100 80GB HBM3")
    assert "critical: input_bound" in out or "warning: input_bound" in out
    assert status == 0


def test_only_the_rules_that_were_asked_for(capsys):
    keep("train")
    _, out, _ = run(capsys, "diagnose", "--json", "--rule", "input_bound", "--rule", "tf32_off")
    told = json.loads(out)
    named = {each["rule"] for kind in ("findings", "not_measured") for each in told[kind]}
    assert "input_bound" in named
    assert named <= {"input_bound", "tf32_off"}


def test_a_limit(capsys):
    keep("train")
    everything = json.loads(run(capsys, "diagnose", "--json")[1])["findings"]
    limited = json.loads(run(capsys, "diagnose", "--json", "--limit", "1")[1])["findings"]
    assert limited == everything[:1]
    _, whole, _ = run(capsys, "diagnose")
    _, cut, _ = run(capsys, "diagnose", "--limit", "1")
    (said,) = (line for line in whole.splitlines() if " things to fix" in line)
    assert f"{said.removesuffix('.')}, 1 of them shown." in cut


def test_what_a_damaged_trace_lacks_is_said(capsys, here):
    lost = "The JSON ends early: the 9 events before that were read."
    keep("train", steps(Made()).profile(devices=(H100,), warnings=(lost,)))
    assert lost in run(capsys, "diagnose")[2]
    assert json.loads(run(capsys, "diagnose", "--json")[1])["notes"] == [lost]


def test_without_a_gpu_it_sends_nobody_to_do_the_same_again(capsys):
    made = Made()
    made.range("ProfilerStep#0", (0, 1000), Range.STEP)
    made.operator("aten::mm", (100, 500))
    keep("train", made.profile(source="kineto"))
    out = run(capsys, "diagnose")[1]
    assert "   on a machine with a GPU, gpuadvisor profile SCRIPT: " in out


def test_ranks_of_another_run_are_not_this_runs(capsys):
    for rank, (name, ranks) in enumerate((("one", 8), ("two", 16))):
        made = steps(Made()).profile(devices=(H100,), rank=rank, world_size=ranks)
        keep(name, made, "/traces", rank)
    told = json.loads(run(capsys, "diagnose", "one", "--json", "--rule", "straggler_rank")[1])
    assert [each["rule"] for each in told["not_measured"]] == ["straggler_rank"]


@pytest.mark.parametrize(("severity", "status"), [("notice", 4), ("warning", 4)])
def test_ci_can_fail_on_findings(severity, status, capsys):
    keep("train")
    ended, out, err = run(capsys, "diagnose", "--fail-on", severity)
    assert ended == status
    assert "input_bound" in out, "what was found is printed all the same"
    assert re.fullmatch(
        rf"gpuadvisor: \d+ findings? at {severity} or above: .*input_bound.*\n", err
    )


def test_ci_does_not_fail_where_all_is_well(capsys):
    keep("train", steps(Made(), data_us=0.0, gemm_us=980.0).profile(devices=(H100,)))
    words = ("--rule", "input_bound", "--fail-on", "notice")
    status, out, err = run(capsys, "diagnose", *words)
    assert (status, err) == (0, "")
    assert (
        "No rule found something to fix in the GPU's idle time; 1 of 1 rule could look, for input"
        " bound." in out
    )


def test_a_limit_hides_nothing_from_ci(capsys):
    made = steps(Made())
    keep("train", made.profile(devices=(H100,)))
    _, _, err = run(capsys, "diagnose", "--fail-on", "notice")
    assert run(capsys, "diagnose", "--fail-on", "notice", "--limit", "1")[2] == err


def test_documents_go_where_they_are_asked_to(capsys, here):
    keep("train")
    status, out, err = run(
        capsys, "diagnose", "--json", "--markdown", "d.md", "--sarif", "d.sarif"
    )  # fmt: skip
    assert status == 0
    assert json.loads(out)["kind"] == "diagnosis"
    assert (here / "d.md").read_text().startswith("### `train`")
    assert json.loads((here / "d.sarif").read_text())["version"] == "2.1.0"
    assert err.count("wrote ") == 2
    results = json.loads((here / "d.sarif").read_text())["runs"][0]["results"]
    assert (not results) is ("it has no result: no finding has a source line" in err)


def test_a_recording_of_telemetry(capsys, here):
    with Recorder(here / "run.gpr", "0") as recorder:
        for second in range(30):
            recorder.write(frame(second, sample(throttle_reasons=0x8, sm_clock_mhz=700)))
    status, out, _ = run(capsys, "diagnose", "run.gpr")
    assert status == 0
    assert out.startswith("run.gpr: 29 s of telemetry of 1 GPU\n")
    assert "hardware_slowdown" in out
    told = json.loads(run(capsys, "diagnose", "run.gpr", "--json")[1])
    assert (told["source"], told["profile"], told["run_ms"]) == ("telemetry", None, None)
    assert told["notes"] == []


def test_memory_errors_since_the_driver_was_loaded_anew_are_counted(capsys, here):
    counted = {0: 5, 10: 0, 20: 2}  # since the driver was loaded, each ten seconds
    with Recorder(here / "run.gpr", "0") as recorder:
        for second in range(30):
            found = {"ecc_uncorrected_volatile": counted[second]} if second in counted else {}
            recorder.write(frame(second, sample(**found)))
    status, out, _ = run(capsys, "diagnose", "run.gpr")
    assert status == 0
    assert "had 2 memory errors that could not be corrected" in " ".join(out.split())


def test_what_a_damaged_recording_lost_is_said(capsys, here):
    seconds = iter(range(10**9))
    with Recorder(here / "run.gpr", "0", clock=lambda: next(seconds)) as recorder:
        for at_s in range(600):
            power_w = at_s * 7919 % 1009 / 7
            recorder.write(frame(at_s, sample(throttle_reasons=0x8, power_w=power_w)))
    content = bytearray((here / "run.gpr").read_bytes())
    content[len(content) // 2] ^= 0xFF
    (here / "run.gpr").write_bytes(content)
    status, out, err = run(capsys, "diagnose", "run.gpr")
    assert status == 0
    assert "hardware_slowdown" in out
    (note,) = json.loads(run(capsys, "diagnose", "run.gpr", "--json")[1])["notes"]
    assert err == f"gpuadvisor: {note}\n"
    assert re.fullmatch(
        r"run\.gpr, 2023-11-1\d \d\d:\d\d:\d\d: The recording is damaged here: \d+\.\d kB of it"
        r" cannot be read, (\d+ s|1 min( 1 s)?) are missing\.",
        note,
    )


@pytest.mark.parametrize("command", ["import", "report"])
def test_a_recording_is_no_profile(capsys, here, command):
    with Recorder(here / "run.gpr", "0") as recorder:
        recorder.write(frame(0, sample()))
    status, _, err = run(capsys, command, "run.gpr")
    assert status != 0
    assert "run.gpr is a recording of telemetry and no profile: `gpuadvisor diagnose`" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere",), "There is no profile 'nowhere', and none is stored"),
        (("nowhere.py",), "there is no script nowhere.py in"),
        (("--rule", "inputbound"), "There is no rule 'inputbound': did you mean input_bound"),
        (("--rule", "xyzzy"), "There is no rule 'xyzzy': there is none like it"),
        (("--limit", "0"), "--limit 0: give a number above zero"),
        (("train.py", "--steps", "-1"), "--steps -1: give a number above zero"),
        (("trace.json", "--stacks"), "--stacks is for scripts, and trace.json was recorded"),
        (("trace.json", "--tree", "--json"), "--tree is a table for the terminal"),
        (("train.py", "--tree", "--markdown"), "--tree is a table for the terminal"),
        (("trace.json", "--name", "x"), "--name is for scripts, and trace.json was recorded"),
        (("trace.json", "--", "--epochs", "1"), "what follows -- is a script's own"),
        (("-m",), "-m needs the name of a module"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(words, sentence, capsys):
    status, out, err = run(capsys, "diagnose", *words)
    assert (status, out) == (2, "")
    assert err.startswith(f"gpuadvisor: {sentence}")
    assert err.count("\n") == 1


# -- large recordings --------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch):
    """A stored profile of more events than are judged together, of which the first steps copy
    most; where it is a file, too."""
    profile = steps(Made(), number=60).profile(devices=(H100,), duration_ns=60_000_000)
    keep("large", profile)
    monkeypatch.setattr(excerpt, "MOST_EVENTS", events(profile) // 2)
    return profile


def test_of_a_large_recording_a_part_is_judged_and_told(large, capsys):
    _, out, _ = run(capsys, "diagnose", "large")
    told = out.splitlines()
    assert re.match(r"large: (29|30) steps in (29|30)\.\d ms on NVIDIA H100", told[0])
    assert re.match(r"Steps 1\d to 4\d are looked at, of 60 \(0.00\d+ of 0.00\d+ mill", told[1])
    assert "the whole run" not in out
    document = json.loads(run(capsys, "diagnose", "large", "--json")[1])
    part = document["excerpt"]
    assert part["of_steps"] == 60 and part["of_events"] == events(large)
    assert document["looked_at"].startswith(f"Steps {part['first_step']} to {part['last_step']} ")
    account = document["account"][0]
    assert part["begin_ns"] <= account["begin_ns"] < account["end_ns"] <= part["end_ns"]
    lasted = account["end_ns"] - account["begin_ns"]
    assert sum(each["time_ns"] for each in account["entries"]) == lasted


def test_the_whole_of_a_large_recording_where_it_is_asked_for(large, capsys):
    _, out, _ = run(capsys, "diagnose", "large", "--whole")
    assert out.startswith("large: 60 steps in ") and "looked at" not in out
    document = json.loads(run(capsys, "diagnose", "large", "--whole", "--json")[1])
    assert document["excerpt"] is None and document["looked_at"] is None


def test_reports_and_comparisons_tell_which_part_they_are_of(large, here, capsys):
    run(capsys, "report", "large")
    page = (here / "large.html").read_text("utf-8")
    assert page.count("are looked at, of 60") == 1
    assert page.index("are looked at, of 60") < page.index("What to fix first")
    run(capsys, "report", "large", "--whole", "--html", "whole.html")
    assert "are looked at, of 60" not in (here / "whole.html").read_text("utf-8")
    keep("small")
    compared = json.loads(run(capsys, "compare", "small", "large", "--json")[1])
    assert compared["after"]["steps"] < 40
    assert any(each.startswith("large: Steps ") for each in compared["remarks"])
    compared = json.loads(run(capsys, "compare", "small", "large", "--whole", "--json")[1])
    assert compared["after"]["steps"] == 60


def test_a_recording_without_a_gpu_tells_its_part_too(monkeypatch, capsys):
    made = Made()
    for number in range(60):
        made.operator("aten::mm", (1000.0 * number + 100, 800))
        made.range(f"ProfilerStep#{number}", (1000.0 * number, 1000), Range.STEP)
    keep("cpu", made.profile(duration_ns=60_000_000))
    monkeypatch.setattr(excerpt, "MOST_EVENTS", 60)
    _, out, _ = run(capsys, "diagnose", "cpu")
    assert "are looked at, of 60" in out


# -- what is gathered --------------------------------------------------------------------------


def test_all_ranks_of_the_folder_are_evidence_by_rank(capsys):
    for rank in (2, 0, 1):
        keep(f"rank{rank}", ranks_of="/data/run", rank=rank)
    keep("other", ranks_of="/data/other", rank=0)
    keep("alone")
    gathered = evidence_of(resolve_profile("rank1"))
    assert [each.profile.header.rank for each in gathered.ranks] == [0, 1, 2]
    assert gathered.ranks[1] is gathered.facts
    assert evidence_of(resolve_profile("alone")).ranks == ()


def test_of_a_rank_that_was_imported_twice_one_is_looked_at():
    for name, rank in (("a", 0), ("b", 0), ("c", 1)):
        keep(name, ranks_of="/data/run", rank=rank)
    gathered = evidence_of(resolve_profile("a"))
    assert [each.profile.header.rank for each in gathered.ranks] == [0, 1]
    assert gathered.ranks[0] is gathered.facts


@pytest.mark.parametrize(
    ("gpu", "is_taken"),
    [(H100.name, True), ("NVIDIA A100-SXM4-80GB", False)],
)
def test_telemetry_is_of_the_same_machine_or_none(gpu, is_taken, monkeypatch):
    asked = []

    def window(begin_s, end_s):
        asked.append((begin_s, end_s))
        return TelemetryWindow(begin_s, end_s, (GpuWindow(Gpu("GPU-1", 0, gpu)),))

    monkeypatch.setattr(gathering, "window_of_store", window)
    profile = steps(Made()).profile(
        devices=(H100,), begin_unix_ns=1_700_000_000 * 10**9, duration_ns=4 * 10**9
    )
    found = evidence_of(ResolvedProfile("train", "", profile)).telemetry
    assert (found is not None) is is_taken
    assert asked == [(1_700_000_000.0, 1_700_000_004.0)]


def test_without_the_time_of_day_there_is_no_telemetry():
    assert evidence_of(ResolvedProfile("train", "", whole())).telemetry is None


def test_the_version_of_torch_is_known_by_its_name():
    header = whole(tool="torch 2.8.0+cu128", facts={"cuda_driver_version": "12080"}).header
    assert environment(header) == {"torch": "2.8.0+cu128", "cuda_driver_version": "12080"}


def test_what_the_harness_saw_is_of_the_profiled_steps():
    seen = HarnessEvents()
    loader = {"batch_size": 8, "num_workers": 0, "pin_memory": False,
              "persistent_workers": False, "prefetch_factor": None, "iterable": False}  # fmt: skip
    for event in (
        {"event": "torch", "version": "2.8"},
        {"event": "step", "marker": "optimizer"},
        {"event": "warm", "steps": 20, "compiles": 0},
        {"event": "facts", "training": True, "loaders": [loader], "optimizers": ["SGD"],
         "roots": ["Net"]},
        {"event": "done", "marker": "optimizer", "steps": 25, "peak_memory_bytes": 1,
         "reserved_memory_bytes": 1, "last_loss": None, "compiles": 0, "short": False},
    ):  # fmt: skip
        seen.take({"pid": 7, **event})
    measured = seen.measurement(Facts(steps(Made()).profile()))
    assert measured is not None
    assert measured.step_ms == (1.0,) * 4
    assert measured.data_wait_share == pytest.approx(0.3)
    assert measured.facts.loaders[0].num_workers == 0
    assert measured.facts.optimizers == ("SGD",)


def test_where_no_step_was_seen_nothing_was_measured():
    assert HarnessEvents().measurement(Facts(steps(Made()).profile())) is None
    assert HarnessEvents().measurement(Facts(Made().profile())) is None


# -- explain -----------------------------------------------------------------------------------


def test_the_page_of_a_rule_with_what_belongs_to_it(capsys):
    status, out, _ = run(capsys, "explain", "input_bound")
    assert status == 0
    assert out.startswith("# input_bound: ")
    assert "- Needs: a profile (`gpuadvisor profile`)" in out
    assert "- Knobs that try it: `dataloader_workers`" in out


def test_all_rules_are_listed_with_what_they_need(capsys):
    status, out, _ = run(capsys, "explain")
    lines = out.splitlines()
    assert status == 0
    for rule in load_rules():
        (line,) = (each for each in lines if each.startswith(f"  {rule.name} "))
        assert rule.title in line
        assert re.search(r" \[(profile|counters|telemetry|script|profiles of all ranks|limits of "
                         r"the GPU)[^]]*\]$", line), line  # fmt: skip
    assert {str(rule.rule.category).replace("_", " ") for rule in load_rules()} <= set(lines)


def test_an_unknown_rule_is_answered_with_near_ones(capsys):
    status, out, err = run(capsys, "explain", "input-bond")
    assert (status, out) == (2, "")
    assert "did you mean input_bound" in err
