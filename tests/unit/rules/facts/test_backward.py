"""Which forward operator the backward pass belongs to, and where that is in the program."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from gpuadvisor.domain.profile import Range
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made

PROFILES = Path(__file__).parents[3] / "data" / "profiles"
STACKS = PROFILES / "cpu_language_model_stacks.json.gz"
ARROWS = [STACKS, PROFILES / "h100_small_cnn_train.json.gz",
          *sorted((PROFILES / "h200_programs").glob("*.json.gz"))]  # fmt: skip
"""Traces in which PyTorch itself points from forward to backward operators (`fwdbwd`)."""
ENGINE = "autograd::engine::evaluate_function: MmBackward0"
BACKWARD_THREAD = 9


def arrows(path):
    """Return process, thread and time (ns) of each backward operator that an arrow of PyTorch
    points to, with those of the forward operator that it comes from."""
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=lambda text: text)
    events = document["traceEvents"]
    first = min(ns(each["ts"]) for each in events if each["ph"] == "X" and each["cat"] != "Trace")
    ends = {"s": {}, "f": {}}
    for event in events:
        if event.get("cat") == "fwdbwd":
            at = event["pid"], event["tid"], ns(event["ts"]) - first
            ends[event["ph"]][event["id"]] = at
    return {ends["f"][each]: ends["s"][each] for each in ends["f"] if each in ends["s"]}


def ns(text):
    whole, _, part = str(text).partition(".")
    return int(whole) * 1000 + int(part.ljust(3, "0"))


@pytest.mark.parametrize("path", ARROWS, ids=lambda path: path.name.partition(".")[0])
def test_it_belongs_to_the_operator_that_pytorch_points_from(path):
    found, told = Facts(read_profile(path)).backward, arrows(path)
    if not told:
        assert len(found) == 0
        return
    linked = {
        (process, thread, begin): (process, on, forward)
        for process, thread, begin, on, forward in zip(
            found.process.tolist(), found.thread.tolist(), found.begin_ns.tolist(),
            found.forward_thread.tolist(), found.forward_ns.tolist(), strict=True,
        )
    }  # fmt: skip
    assert {at: linked.get(at) for at in told} == told


def test_a_real_step_is_placed_in_the_modules_that_it_is_of():
    """The gradients of each layer in that layer, also of one that a checkpoint computes again."""
    facts = Facts(read_profile(STACKS))
    texts, columns = facts.profile.header.texts, facts.profile.columns("operators")
    names = np.array([texts[name] for name in columns["name"].tolist()])
    rows = np.flatnonzero(np.isin(names, ("AddmmBackward0", "EmbeddingBackward0")))
    when = tuple(columns[name][rows] for name in ("begin_ns", "process", "thread"))
    line, module, _, later = facts.places.at(*when)
    assert (later >= 0).all()
    assert [facts.modules.path(each) for each in module.tolist()] == [
        "Net_0.Head_0.Linear_3", "Net_0.Head_0.Linear_2",
        "Net_0.Attention_0.Linear_1", "Net_0.Attention_0.Linear_0", "Net_0.Embedding_0",
    ]  # fmt: skip
    functions = [facts.sources.lines[each] for each in line.tolist()]
    assert {each.source.partition(":")[0] for each in functions} == {"train.py"}
    assert {each.function for each in functions} == {"forward"}


def stepped(sequence=7, forward_thread=1, threads=(1,)):
    """A product in a module, and its gradient from a thread without stacks, with a kernel each."""
    made = Made()
    for thread in threads:
        stack = ("train.py(3): main", "nn.Module: Net_0", "net.py(7): forward", "nn.Module: Mix_0")
        for depth, frame in enumerate(stack):
            made.range(frame, (0, 100 - depth), Range.PYTHON, thread=thread)
        told = {"thread": thread, "forward_thread": 0}
        made.operator("aten::t", (10, 5), sequence=7, **told)
        made.operator("aten::mm", (20, 50), sequence=7, **told)
        made.operator("aten::sum", (80, 5), sequence=8, **told)
        made.launched("forward", call=(30, 5), runs=(40, 100), thread=thread)
    told = {"thread": BACKWARD_THREAD, "sequence": sequence, "forward_thread": forward_thread}
    made.operator(ENGINE, (200, 60), **told)
    made.operator("MmBackward0", (201, 50), **told)
    made.operator("aten::mm", (210, 30), thread=BACKWARD_THREAD)
    made.launched("backward", call=(220, 5), runs=(230, 300), thread=BACKWARD_THREAD)
    return made


def of_backward(made):
    facts = Facts(made.profile())
    rows = [row for row in range(len(facts.work)) if facts.work.describe(row) == "backward"]
    return facts.places.of_work(np.array(rows, np.int64))


def test_its_work_is_at_the_line_and_in_the_module_of_the_forward_operator():
    source, place = of_backward(stepped())
    assert (source, place.function, place.module) == ("net.py:7", "forward", "Net_0.Mix_0")
    assert (place.source_share, place.module_share, place.backward_share) == (1, 1, 1)


def test_the_share_of_the_backward_pass_is_told():
    facts = Facts(stepped().profile())
    _, place = facts.places.of_work(np.arange(2))
    assert place.backward_share == pytest.approx(300 / 400)


@pytest.mark.parametrize(
    "changed",
    [{"sequence": 70}, {"sequence": -1}, {"forward_thread": -1}, {"threads": (1, 2)}],
    ids=["no such node", "not numbered", "no thread", "two threads that have it"],
)
def test_what_belongs_to_no_known_operator_is_nowhere(changed):
    assert of_backward(stepped(**changed))[0] is None


def test_of_two_threads_it_is_the_one_whose_operators_have_the_same_numbers():
    made = stepped()
    made.range("loader.py(1): fetch", (0, 150), Range.PYTHON, thread=2)
    made.operator("aten::mm", (20, 50), thread=2, sequence=1, forward_thread=0)
    made.operator("aten::mm", (90, 50), thread=2, sequence=2, forward_thread=0)
    assert of_backward(made)[0] == "net.py:7"


def test_a_node_is_none_that_was_made_later():
    """As of a recording that began within the backward pass."""
    made = Made()
    made.range("train.py(3): main", (300, 100), Range.PYTHON)
    made.operator("aten::mm", (320, 50), sequence=7, forward_thread=0)
    made.operator(ENGINE, (0, 60), thread=BACKWARD_THREAD, sequence=7, forward_thread=1)
    made.launched("backward", call=(20, 5), runs=(30, 300), thread=BACKWARD_THREAD)
    assert of_backward(made)[0] is None


def test_a_backward_pass_of_the_users_own_is_where_it_is_written():
    made = stepped()
    made.range("ops.py(4): backward", (205, 40), Range.PYTHON, thread=BACKWARD_THREAD)
    source, place = of_backward(made)
    assert (source, place.function) == ("ops.py:4", "backward")
    assert place.module == "Net_0.Mix_0"


def test_what_a_checkpoint_computes_again_is_in_its_module():
    made = stepped()
    made.range("nn.Module: Again_0", (205, 40), Range.PYTHON, thread=BACKWARD_THREAD)
    assert of_backward(made)[1].module == "Again_0"


def test_a_gradient_of_a_gradient_belongs_to_the_first_operator():
    made = stepped()
    made.operator("aten::mul", (240, 5), thread=BACKWARD_THREAD, sequence=3, forward_thread=0)
    told = {"thread": BACKWARD_THREAD, "sequence": 3, "forward_thread": 5}
    made.operator("autograd::engine::evaluate_function: MulBackward0", (400, 50), **told)
    made.launched("second", call=(410, 5), runs=(600, 10), thread=BACKWARD_THREAD)
    facts = Facts(made.profile())
    assert facts.places.of_work(np.array([2]))[0] == "net.py:7"


def test_a_range_is_not_around_the_backward_pass_of_what_it_is_around():
    made = stepped()
    made.range("forward pass", (0, 99))
    assert of_backward(made)[1].region == ""


def test_the_tree_of_modules_tells_forward_and_backward_apart():
    outer, inner = Facts(stepped().profile()).module_times
    assert (outer.device_ns, outer.backward_ns) == (100_000, 300_000)
    assert (inner.device_ns, inner.backward_ns) == (100_000, 300_000)
