"""What stands for a value, and for the lack of one."""

import pytest

from gpuadvisor.domain.accumulators import Reading
from gpuadvisor.domain.metrics import BY_NAME
from gpuadvisor.domain.telemetry import Gpu, State
from gpuadvisor.tui.watch import cells
from tests.telemetry import GIB, h100


@pytest.mark.parametrize(
    ("metric", "value", "short", "full"),
    [
        ("gpu_utilization_pct", 0, "0", "0 %"),
        ("gpu_utilization_pct", 97, "97", "97 %"),
        ("sm_active_pct", 81.44, "81", "81.4 %"),
        ("power_w", 652.3, "652", "652.3 W"),
        ("temperature_c", 67, "67", "67 C"),
        ("memory_used_bytes", 71 * GIB, "71.0", "71.00 GiB"),
        ("memory_used_bytes", 0, "0.0", "0.00 GiB"),
        ("pcie_rx_bytes_per_s", 0, "0", "0 B/s"),
        ("pcie_rx_bytes_per_s", 999.0, "999", "999 B/s"),
        ("pcie_rx_bytes_per_s", 3.4e6, "3.4M", "3.4 MB/s"),
        ("pcie_rx_bytes_per_s", 950e6, "950M", "950 MB/s"),
        ("nvlink_rx_bytes_per_s", 41.2e9, "41.2G", "41.2 GB/s"),
        ("throttle_reasons", 0x4, "4", "power cap"),
        ("throttle_reasons", 0x1, "1", "none"),
        ("performance_state", 0, "0", "0"),
    ],
)
def test_a_value_by_its_unit(metric, value, short, full):
    assert (cells.short(BY_NAME[metric], value), cells.full(BY_NAME[metric], value)) == (
        short,
        full,
    )


@pytest.mark.parametrize(
    ("reading", "placeholders"),
    [
        (None, ("…",)),
        (Reading(None, State.NOT_SUPPORTED, 100.0), ("n/a",)),
        (Reading(None, State.NO_PERMISSION, 100.0), ("no perm", "perm")),
        (Reading(97, State.STALE, 100.0), ("stale 3 s", "stale", "old")),
        (Reading(None, State.LOST, 100.0), ("lost",)),
    ],
)
def test_a_sign_says_why_there_is_no_value_and_has_no_zero(reading, placeholders):
    assert cells.placeholders(reading, now_s=103.0) == placeholders
    assert not any("0" in sign for sign in placeholders)


@pytest.mark.parametrize(
    ("width", "text"), [(9, "stale 3 s"), (8, "stale"), (4, "old"), (2, "o…"), (1, "…"), (0, "")]
)
def test_the_clearest_text_that_fits_is_shown(width, text):
    assert cells.fit(["stale 3 s", "stale", "old"], width) == text


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0, []),
        (0x1 | 0x2 | 0x100, []),
        (0x4, ["power cap"]),
        (0x4 | 0x20, ["thermal", "power cap"]),
        (0x8, ["hw slowdown"]),
        (0x8 | 0x40, ["hw thermal"]),
        (0x8 | 0x80, ["power brake"]),
    ],
)
def test_what_holds_the_clocks_down_is_said_in_words(mask, words):
    assert cells.reasons(mask) == words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (0, "0 s"), (3.4, "3 s"), (59, "59 s"), (300, "5 min"), (7200, "2 h")],
)
def test_an_age_is_told_in_its_largest_unit(seconds, text):
    assert cells.age(seconds) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["3"], "3"),
        (["0", "1"], "0 and 1"),
        (["0", "1", "3"], "0, 1 and 3"),
        (["0", "2", "3", "4"], "0 and 2 to 4"),
        ([str(n) for n in range(64)], "0 to 63"),
        ([str(n) for n in range(0, 64, 2)], "0, 2, 4, 6, 8 and 27 more"),
        (["0", "0/1", "0/2", "1", "abcdefgh"], "0, 0/1, 0/2, 1 and abcdefgh"),
    ],
)
def test_several_gpus_are_named_in_a_few_words(names, text):
    assert cells.several(names) == text


def test_instances_are_numbered_within_their_gpu():
    slices = [
        Gpu(f"MIG-{n}", 0, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", parent_uuid="GPU-0") for n in "ab"
    ]
    gpus = [h100(0), *slices, h100(1)]
    assert list(cells.labels(gpus).values()) == ["0", "0/1", "0/2", "1"]
    assert [cells.name(gpu) for gpu in gpus] == [
        "H100 80GB HBM3",
        "MIG 1g.10gb",
        "MIG 1g.10gb",
        "H100 80GB HBM3",
    ]
