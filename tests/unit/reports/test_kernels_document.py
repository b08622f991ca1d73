"""What is said of tuned kernels."""

from dataclasses import replace

import pytest

from gpuadvisor.domain.kernel_records import Evaluation, KernelResult, Replay
from gpuadvisor.domain.study import Speedup, TrialState, Verdict
from gpuadvisor.reports.kernel.document import document, lines, replay_lines

WRONG = "{} of 8 elements differ by more than 0.0001: element {} is 1 and should be 2"
RESULT = KernelResult(
    "transpose",
    {"rows": 8192},
    "NVIDIA H200",
    588,
    {"block": 32},
    Verdict.FASTER,
    best={"block": 16},
    speedup=Speedup(1.57, 1.56, 1.58, 12),
    default_ms=0.25,
    best_ms=0.16,
    evaluations=(
        Evaluation({"block": 32}, TrialState.COMPLETE, "", (0.25,), (0.25,)),
        Evaluation({"block": 8}, TrialState.WRONG, WRONG.format(3, 0)),
        Evaluation({"block": 4}, TrialState.WRONG, WRONG.format(4, 7)),
        Evaluation({"block": 2}, TrialState.HUNG, "no answer within 60 s"),
    ),
    useful_bytes=5e8,
    has_reference=True,
    record="/store/transpose.json",
    restarts=1,
)


def test_a_gain_is_told_with_its_interval_its_rate_and_what_failed():
    text = "\n".join(lines(RESULT))
    assert text.startswith("transpose (rows=8192) on NVIDIA H200: 1.57x [99 % interval 1.56-1.58]")
    assert "best     block=16: 160 µs, 3.12 TB/s" in text
    assert "2 gave wrong results: 3 of 8 elements differ by more than 0.0001" in text
    assert "1 hung: no answer within 60 s" in text
    assert "1 process went down with a kernel" in text


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"verdict": Verdict.NO_GAIN, "best": None}, "the default is as good as the best found"),
        ({"verdict": Verdict.INCONCLUSIVE, "best": None}, "inconclusive: the best found is 1.57x"),
        ({"speedup": None, "interrupted": "interrupted"}, "interrupted before anything was proven"),
        ({"speedup": None}, "nothing but the default could be timed"),
        ({"has_reference": False}, "compared with the default's: the kernel has no reference"),
        ({"repeats": False}, "does not give the same bits twice"),
    ],
)
def test_what_was_not_shown_is_said(changes, said):
    assert said in "\n".join(lines(replace(RESULT, **changes)))


@pytest.mark.parametrize(("points", "is_small"), [(300, True), (301, False)])
def test_a_score_says_little_in_a_space_of_which_all_points_are_tried(points, is_small):
    replay = Replay("transpose", "", points, points, 1.0, 2.0, (1, 2, 3), (), 200)
    text = "\n".join(replay_lines(replay))
    assert ("of a space of up to 300 points" in text) is is_small


def test_json_counts_states_and_has_no_best_where_none_is_proven():
    (kernel,) = document([replace(RESULT, best=None)])["kernels"]
    assert kernel["states"] == {"complete": 1, "wrong": 2, "hung": 1}
    assert (kernel["best"], kernel["speedup"]["blocks"]) == (None, 12)
