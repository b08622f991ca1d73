"""Which columns fit, and what stands in them."""

import pytest

from gpuadvisor.domain.telemetry import Gpu, State, Unavailable
from gpuadvisor.tui.watch import cells, columns, table
from gpuadvisor.tui.watch.state import WatchState
from tests.telemetry import BUSY, GIB, START_S, all_in, frame, h100, sample


@pytest.fixture
def watched():
    return WatchState("live", clock=lambda: 0.0)


def titles(watched, width):
    return [placed.title(watched).strip() for placed in columns.chosen(watched, width)]


def row(watched, width=200):
    """What stands under each title, of the first GPU."""
    placed = columns.chosen(watched, width)
    cells = [
        (c.title(watched).strip(), c.cell(watched, watched.gpus[0])[0].strip()) for c in placed
    ]
    return {title: text for title, text in cells if title}  # a bar has no title


def test_a_busy_gpu(watched):
    watched.update(frame(0, sample()))
    shown = row(watched)
    (picture,) = [title for title in shown if title.startswith("util, last")]
    assert shown.pop(picture).strip() == "█"
    assert shown == {
        "GPU": "0",
        "name": "H100",
        "util": "97%",
        "SM": "81%",
        "occup": "33%",
        "tensor": "44%",
        "DRAM": "39%",
        "mem GiB": "71.0/80",
        "power W": "652/700",
        "°C": "67",
        "MHz": "1755",
        "NVLink in/out": "41.2G/40.9G",
        "PCIe in/out": "1.2G/3.4M",
        "why": "ok",
    }


def test_the_columns_never_need_more_than_there_is(watched):
    watched.update(frame(0, sample(), sample(throttle_reasons=0x24)))
    for width in range(1, 300):
        placed = columns.chosen(watched, width)
        if width >= columns.NUMBER.width:
            assert sum(c.width for c in placed) + table.GAP * (len(placed) - 1) <= width
        for column in placed:
            texts = [column.title(watched), *(column.cell(watched, g)[0] for g in watched.gpus)]
            assert {len(text) for text in texts} == {column.width}


def test_what_matters_least_goes_first(watched):
    watched.update(frame(0, sample()))
    assert titles(watched, 3) == ["GPU"]
    assert titles(watched, 9) == ["GPU", "util"]
    assert titles(watched, 43) == ["GPU", "util", "mem GiB", "why"]
    at_80 = titles(watched, 80)
    assert {"", "power W", "°C", "why", "util 1 min"} <= set(at_80)
    assert not {"PCIe in/out", "NVLink in/out"} & set(at_80)


def test_what_no_gpu_has_takes_no_room(watched):
    lacking = {
        name: Unavailable(State.NOT_SUPPORTED, START_S)
        for name in BUSY
        if name.startswith(("sm_", "nvlink_")) and name.endswith(("active_pct", "per_s"))
    }
    watched.update(frame(0, sample(lacking)))
    assert not {"SM", "NVLink in/out"} & set(titles(watched, 200))
    watched.update(frame(1, sample(lacking), sample()))
    shown = row(watched)
    assert (shown["SM"], shown["NVLink in/out"]) == ("n/a", "n/a")


@pytest.mark.parametrize(
    ("state", "wide", "narrow"),
    [
        (State.NOT_SUPPORTED, "n/a", "n/a"),
        (State.NO_PERMISSION, "no perm", "perm"),
        (State.STALE, "stale 3 s", "stale"),
        (State.LOST, "lost", "lost"),
    ],
)
def test_a_gpu_without_values_shows_no_number(watched, state, wide, narrow):
    watched.update(frame(0, sample()))
    watched.update(frame(3, all_in(state, START_S)))
    shown = row(watched)
    assert (shown["power W"], shown["util"]) == (wide, narrow)
    figures = [text for title, text in shown.items() if title not in ("GPU", "name", "why")]
    placeholders = {wide, narrow, "old", "stale", "perm"}
    assert not [t for t in figures if t not in placeholders and not set(t) <= set(" ▁█")]


def test_before_anything_is_read_all_is_awaited(watched):
    watched.update(frame(0, sample(**dict.fromkeys(BUSY))))
    shown = row(watched)
    assert {text for title, text in shown.items() if title not in ("GPU", "name")} == {"…"}


def test_values_get_old_while_no_frame_comes():
    now = [0.0]
    watched = WatchState("live", clock=lambda: now[0])
    watched.update(frame(0, sample()))
    now[0] = 5.0
    assert row(watched)["why"].startswith("stale 5 s")
    watched.end()
    assert row(watched)["why"] == "ok"


def test_a_zero_is_a_zero(watched):
    watched.update(frame(0, sample(gpu_utilization_pct=0, power_w=0, memory_used_bytes=0)))
    shown = row(watched)
    assert (shown["util"], shown["power W"], shown["mem GiB"]) == ("0%", "0/700", "0.0/80")


def test_a_limit_or_a_direction_that_is_not_known_is_a_question(watched):
    watched.update(frame(0, sample(power_limit_w=None, pcie_tx_bytes_per_s=None)))
    shown = row(watched)
    assert (shown["power W"], shown["PCIe in/out"]) == ("652/?", "1.2G/?")


def test_a_name_is_cut_where_models_are_alike(watched):
    instance = Gpu("MIG-1", 0, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", parent_uuid="GPU-0")
    watched.update(frame(0, sample(), gpus=(h100(0), instance)))
    names = columns.NAME.show(watched, h100(0), 8), columns.NAME.show(watched, instance, 8)
    assert [cells.fit(cell.texts, 8) for cell in names] == ["H100", "1g.10gb"]


def test_several_reasons_are_counted_where_there_is_no_room(watched):
    watched.update(frame(0, sample(throttle_reasons=0x24)))
    assert row(watched, 45)["why"] == "thermal, power cap"
    assert row(watched, 60)["why"] == "thermal, power cap"
    assert watched.why(watched.gpus[0]).texts[-2:] == ("thermal +1", "thermal")


def test_a_gpu_that_does_not_tell_its_reasons_answers(watched):
    watched.update(
        frame(0, sample({"throttle_reasons": Unavailable(State.NOT_SUPPORTED, START_S)}))
    )
    assert row(watched)["why"] == "answers"


def test_the_largest_memory_fits(watched):
    gpu = Gpu("GPU-0", 0, "NVIDIA B300")
    large = sample(memory_used_bytes=287.6 * GIB, memory_total_bytes=288 * GIB)
    watched.update(frame(0, large, gpus=(gpu,)))
    assert row(watched, 80)["mem GiB"] == "287.6/288"


def test_the_picture_goes_through_what_a_gpu_has(watched):
    lacking = {"tensor_active_pct": Unavailable(State.NOT_SUPPORTED, START_S)}
    watched.update(frame(0, sample(lacking)))
    seen = []
    for _ in range(20):
        watched.next_sparkline()
        seen.append(watched.sparkline.title)
    assert "tensor" not in seen
    first = seen[: seen.index("util") + 1]
    assert first == ["memory", "power", "temp", "clock", "SM active", "DRAM", "PCIe in",
                     "NVLink in", "util"]  # fmt: skip
    assert seen[len(first)] == "memory"
