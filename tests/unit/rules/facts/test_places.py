"""Where in the program something comes from."""

import numpy as np
import pytest

from gpuadvisor.domain.profile import CallKind, Range
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.paces import idle_ns
from tests.profiles import Made

SHAPES = "[[32, 64], [64, 10]]"


def stack(made, begin, lasts, *frames):
    """Python functions that run, the outermost first."""
    for depth, frame in enumerate(frames):
        made.range(frame, (begin, lasts - depth / 10), Range.PYTHON)


def two_layers(first_us=100, second_us=300):
    """A model of two layers, each a line and a module of its own, that launch a kernel each."""
    made = Made()
    outer = "train.py(3): main", "nn.Module: Net_0"
    stack(made, 0, 100, *outer, "net.py(7): forward", "nn.Module: Linear_0")
    stack(made, 100, 100, *outer, "head.py(9): forward", "nn.Module: Linear_1")
    for begin, name, us in ((10, "one", first_us), (110, "two", second_us)):
        made.operator("aten::mm", (begin, 20), shapes=SHAPES if name == "two" else "[[1, 2]]")
        made.launched(name, call=(begin + 5, 5), runs=(10 * begin, us))
    return made


def of_all(made):
    facts = Facts(made.profile())
    return facts.places.of_work(np.arange(facts.work.kernels))


def test_the_line_the_module_and_the_shapes_with_most_of_the_time():
    source, place = of_all(two_layers())
    assert (source, place.function, place.source_share) == ("head.py:9", "forward", 0.75)
    assert (place.module, place.module_share) == ("Net_0.Linear_1", 0.75)
    assert (place.operator, place.shapes, place.operator_share) == ("aten::mm", SHAPES, 0.75)


def test_of_modules_with_less_than_half_the_one_that_holds_them():
    made = two_layers(100, 110)
    made.range("nn.Module: Net_0", (300, 50), Range.PYTHON)
    made.launched("three", call=(310, 5), runs=(3000, 90))
    _, place = of_all(made)
    assert (place.module, place.module_share) == ("Net_0", 1.0)


def test_a_module_is_told_from_the_same_class_elsewhere():
    made = Made()
    stack(made, 0, 100, "nn.Module: Net_0", "nn.Module: Linear_0")
    stack(made, 200, 100, "nn.Module: Head_0", "nn.Module: Linear_0")
    made.launched("one", call=(210, 5), runs=(300, 50))
    assert of_all(made)[1].module == "Head_0.Linear_0"


def test_what_was_launched_nobody_knows_where_counts_as_not_there():
    made = two_layers()
    made.kernel("three", (5000, 400))
    _, place = of_all(made)
    assert place.source_share == pytest.approx(300 / 800)
    assert place.module == "Net_0"  # it has exactly half


def test_a_range_is_named_if_most_is_in_it():
    made = two_layers()
    made.range("head", (100, 100))
    assert of_all(made)[1].region == "head"
    made = two_layers()
    made.range("first layer", (0, 99))
    assert of_all(made)[1].region == ""


def test_nothing_is_known_of_a_profile_without_any_of_it():
    made = Made()
    made.launched("one", call=(10, 5), runs=(20, 50))
    facts = Facts(made.profile())
    assert facts.places.of_run() == (None, None)
    assert facts.places.of_parts(
        dict.fromkeys(["idle/launching", "kernel/none", "copy/exposed"], 1.0)
    ) == (None, None)


def idle():
    """The GPU waits 80 us in one function and 20 us in another until something is launched."""
    made = Made()
    made.range("train.py(1): main", (0, 200), Range.PYTHON)
    made.range("slow.py(2): augment", (20, 80), Range.PYTHON)
    made.range("fast.py(3): move", (120, 20), Range.PYTHON)
    made.launched("one", call=(5, 5), runs=(10, 10))
    made.launched("two", call=(99.5, 0.5), runs=(100, 20))
    made.launched("three", call=(139.5, 0.5), runs=(140, 10))
    return made


def test_idle_time_is_where_the_host_was_meanwhile():
    facts = Facts(idle().profile())
    causes = (Cause.LAUNCHING, Cause.OTHER_HOST)
    source, place = facts.places.of_parts({f"idle/{c}": idle_ns(facts, c) for c in causes})
    assert (source, place.function) == ("slow.py:2", "augment")
    assert 0.7 < place.source_share < 0.9


def test_each_kernel_counts_for_the_time_that_is_said_of_it():
    made = Made()
    made.range("train.py(1): main", (0, 100), Range.PYTHON)
    made.range("long.py(2): long", (0, 40), Range.PYTHON)
    made.range("short.py(3): short", (50, 40), Range.PYTHON)
    made.launched("long", call=(1, 2), runs=(4, 30))
    made.launched("short", call=(51, 2), runs=(54, 3))
    places = Facts(made.profile()).places
    assert places.of_parts({"kernel/long": 30e3, "kernel/short": 3e3})[0] == "long.py:2"
    source, place = places.of_parts({"kernel/long": 1e3, "kernel/short": 3e3})
    assert (source, place.source_share) == ("short.py:3", 0.75)


def test_a_wait_is_where_the_host_waited():
    made = Made()
    made.range("train.py(1): main", (0, 200), Range.PYTHON)
    made.range("log.py(2): show", (5, 60), Range.PYTHON)
    made.launched("one", call=(1, 2), runs=(4, 50))
    made.call("cudaStreamSynchronize", (6, 50), CallKind.SYNCHRONIZE)
    made.launched("two", call=(80, 2), runs=(83, 20))
    found = Facts(made.profile()).places.of_parts({"idle/synchronizing": 1.0})
    assert found[0] == "log.py:2"


def test_waiting_for_data_is_where_the_batch_is_made():
    made = Made()
    made.range("train.py(1): main", (0, 200), Range.PYTHON)
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    made.range(name, (10, 80), Range.LOADER)
    made.range("data.py(4): __getitem__", (12, 70), Range.PYTHON)
    made.launched("one", call=(100, 5), runs=(110, 20))
    source, place = Facts(made.profile()).places.of_parts({"idle/waiting_for_data": 1.0})
    assert (source, place.function) == ("data.py:4", "__getitem__")


def test_memory_is_where_what_lives_at_the_peak_was_allocated():
    made = two_layers()
    total = 0
    for time, size, address in ((20, 100, 1), (120, 300, 2), (150, 50, 3), (160, -50, 3)):
        total += size
        made.row(
            "memory", time_ns=1000 * time, device=0, bytes=size, allocated_bytes=50 + total,
            reserved_bytes=1000, address=address,
        )  # fmt: skip
    source, place = Facts(made.profile()).places.of_memory()
    assert source == "head.py:9"
    assert place.source_share == pytest.approx(350 / 500)  # 50 are older than the recording


def test_a_program_on_the_cpu():
    made = Made()
    made.range("train.py(1): main", (0, 1000), Range.PYTHON)
    made.range("net.py(5): forward", (100, 800), Range.PYTHON)
    made.operator("aten::conv2d", (200, 600), shapes=SHAPES)
    source, place = Facts(made.profile(duration_ns=1_000_000)).places.of_run()
    assert (source, place.operator, place.shapes) == ("net.py:5", "aten::conv2d", SHAPES)


def test_the_tree_of_modules_has_time_work_and_idle_time_with_what_each_calls():
    facts = Facts(two_layers().profile())
    outer, one, other = facts.module_times
    assert (outer.name, outer.depth, outer.calls) == ("Net_0", 0, 2)
    by_name = {one.name: one, other.name: other}
    assert set(by_name) == {"Linear_0", "Linear_1"}
    assert (one.depth, other.depth) == (1, 1)
    assert by_name["Linear_1"].device_ns == 300_000
    assert outer.device_ns == 400_000
    assert outer.host_ns == 2 * 99_900


def test_the_tree_of_modules_has_the_idle_time_in_which_each_ran():
    made = idle()
    made.range("nn.Module: Net_0", (0, 100), Range.PYTHON)
    (only,) = Facts(made.profile()).module_times
    assert only.idle_ns == pytest.approx(80_000, rel=0.05)


def test_no_tree_without_stacks():
    made = Made()
    made.launched("one", call=(10, 5), runs=(20, 50))
    assert Facts(made.profile()).module_times == ()
