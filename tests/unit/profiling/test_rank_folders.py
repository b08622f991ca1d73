"""`gpuadvisor diagnose FOLDER`: the traces of a folder as the ranks of one run."""

import json

import pytest

from gpuadvisor import cli
from gpuadvisor.storage.profiles.library import open_profiles

ALL_REDUCE = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"
RANKS = 4
STEPS = 8


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A store and a current folder of its own."""
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trace(folder, rank, late=2, began_s=1_700_000_000, name=None, ranks=RANKS):
    """Write what the profiler of one rank writes: one rank comes 300 us late to each step's end."""
    events = []
    for step in range(STEPS):
        begin = began_s * 1e6 + 2000 * step + 40 * step * step  # steps differ, as real ones do
        us = 1000 + 300 * (rank == late) + 10 * rank
        passed = begin + 1000 + 300 + 10 * late + 50
        for kernel, start, end in (("gemm", begin, begin + us), (ALL_REDUCE, begin + us, passed)):
            args = {"device": rank, "stream": 7, "correlation": len(events) + 1,
                    "grid": [1, 1, 1], "block": [128, 1, 1]}  # fmt: skip
            call = {"correlation": len(events) + 1}
            events.append({"ph": "X", "cat": "kernel", "name": kernel, "pid": rank, "tid": 7,
                           "ts": start, "dur": end - start, "args": args})  # fmt: skip
            events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9,
                           "tid": 9, "ts": start - 5, "dur": 3, "args": call})  # fmt: skip
    whole = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": at, "name": "Tesla V100-SXM2-32GB", "computeMajor": 7,
                              "computeMinor": 0, "numSms": 80} for at in range(ranks)],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        "traceEvents": events,
    }  # fmt: skip
    if ranks == 0:
        del whole["distributedInfo"]
    folder.mkdir(exist_ok=True)
    path = folder / (name or f"worker{rank}_{began_s}.pt.trace.json")
    path.write_text(json.dumps(whole))
    return path


RULES = ("--rule", "straggler_rank", "--rule", "uneven_ranks")


def run(capsys, *words):
    status = cli.main([*words, *RULES])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_traces_of_a_folder_are_one_diagnosis(here, capsys):
    for rank in range(RANKS):
        trace(here / "traces", rank)
    status, out, err = run(capsys, "diagnose", "traces", "--json")
    assert status == 0
    told = json.loads(out)
    (late,) = (each for each in told["findings"] if each["rule"] == "straggler_rank")
    assert late["scope"] == "rank 2"
    assert "Rank 2 comes last to 8 of 8 collectives, up to 0.32 ms" in late["summary"]
    ranks = told["ranks"]
    assert (ranks["world_size"], ranks["collectives"], ranks["unmatched"]) == (4, 8, None)
    assert [each["name"] for each in ranks["ranks"]] == [f"rank {rank}" for rank in range(4)]
    assert [each["collectives_last"] for each in ranks["ranks"]] == [0, 0, 8, 0]
    assert [round(each["waiting_ns"] / 8_000) for each in ranks["ranks"]] == [320, 310, 0, 290]
    assert {round(each["transferring_ns"] / 8_000) for each in ranks["ranks"]} == {50}
    assert "4 of 4 ranks are stored" in err
    assert "(rank 2), which the others wait for most" in err
    _, out, _ = run(capsys, "diagnose", "traces")
    assert out.startswith("traces (rank 2): ")
    assert "Ranks: 4 ranks, which meet in 8 collectives. Rank 2 comes last to 8 of 8" in out
    assert len(open_profiles().list()) == RANKS, "the second time none is stored again"


def test_a_missing_rank_is_said_and_nobody_is_blamed(here, capsys):
    for rank in (0, 2, 3):
        trace(here / "traces", rank)
    _, out, _ = run(capsys, "diagnose", "traces", "--json")
    told = json.loads(out)
    assert not {"straggler_rank", "uneven_ranks"} & {each["rule"] for each in told["findings"]}
    why = {each["rule"]: each["why"] for each in told["not_measured"]}
    assert why["straggler_rank"] == "3 of 4 ranks are here, and another one may come later still"
    _, out, _ = run(capsys, "diagnose", told["profile"])
    assert "Ranks: 3 ranks of 4. Who comes late is not known: 3 of 4 ranks are here" in out


def test_recordings_of_different_times_are_told_apart(here, capsys):
    for rank in range(RANKS):
        trace(here / "traces", rank)
        trace(here / "traces", rank, late=0, began_s=1_700_009_000)
    trace(here / "traces", 1, late=0, began_s=1_600_000_000, ranks=2)
    _, out, err = run(capsys, "diagnose", "traces", "--json")
    told = json.loads(out)
    assert [each["collectives_last"] for each in told["ranks"]["ranks"]] == [8, 0, 0, 0]
    assert "the folder also has 5 traces of 2 other runs, which are not part of this" in err
    assert told["profile"].endswith("worker0_1700009000")


def test_traces_without_ranks_are_not_one_run(here, capsys):
    for name in ("before", "after"):
        trace(here / "traces", 0, name=f"{name}.json", ranks=0, began_s=1_700_000_000 + len(name))
    status, _, err = run(capsys, "diagnose", "traces")
    assert status == 2
    assert "are of different runs, or do not tell their rank" in err
    assert "traces-after" in err


def test_a_folder_with_one_trace_is_that_trace(here, capsys):
    trace(here / "traces", 0)
    status, out, _ = run(capsys, "diagnose", "traces")
    assert status == 0
    assert out.startswith("worker0_1700000000: ")
    assert open_profiles().list() == []


def test_what_cannot_be_read_is_said(here, capsys):
    for rank in range(RANKS):
        trace(here / "traces", rank)
    (here / "traces" / "broken.json").write_text('{"traceEvents": []}')
    status, out, err = run(capsys, "diagnose", "traces", "--json")
    assert status == 0
    assert len(json.loads(out)["ranks"]["ranks"]) == RANKS
    assert "broken.json" in err


def test_a_folder_without_traces_is_refused(here, capsys):
    (here / "empty").mkdir()
    status, _, err = run(capsys, "diagnose", "empty")
    assert status == 2
    assert "has no trace that gpuadvisor knows" in err
