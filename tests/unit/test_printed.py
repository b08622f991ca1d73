"""Which numbers of a line are results, and which lines speak of time."""

import pytest

from gpuadvisor.domain.printed import (
    memory_places,
    numbers_in,
    tells_memory,
    tells_time,
    without_numbers,
    without_warnings,
)


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("PSNR 23.45dB on 800", [23.45, 800]),
        ("2024-01-01 00:05:00,0.5568", [0.5568]),
        ("2026-11-22T14:32:07.123Z loss 0.25", [0.25]),
        ("14:32:07,123 INFO f1 0.2704", [0.2704]),
        ("v100 3f2a 0x1f 1.2.3 10.0.0.1", []),
        ("85.3%, (7) [8] 1e5 -4", [85.3, 7, 8, 1e5, -4]),
    ],
)
def test_numbers_without_versions_addresses_and_dates(line, numbers):
    assert numbers_in(line) == numbers
    assert without_numbers(line).count("#") == len(numbers)


@pytest.mark.parametrize(
    "line",
    [
        "epoch took 1 s", "16/16 [00:01<00:00, 99.3it/s]", "wall_s", "step_time", "seconds",
        "3.2s", "1.5 s/it", "samples/sec: 33", "ETA 3", "12ms", "1.2 minutes", "Time 0.3 (0.2)",
    ],
)  # fmt: skip
def test_lines_that_speak_of_time(line):
    assert tells_time(line)


@pytest.mark.parametrize(
    "line",
    [
        "sentiment", "timestep_embed", "mean 0.1250 min 0.001 max 3", "results/0001.png,3",
        "2026-11-22 14:32:07 INFO loss 0.25", "metrics", "sometimes 3", "beta 3", "centimeter 4",
    ],
)  # fmt: skip
def test_lines_that_only_look_like_it(line):
    assert not tells_time(line)


def test_warnings_of_libraries_are_no_results():
    """As torch 2.13, Lightning 2.6 and a script's own module print them."""
    place = "/opt/my venv/lib/python3.11/site-packages"
    own = ["/home/me/train.py:3: UserWarning: loss is 3.5", "  warnings.warn(text)"]
    lines = [
        "step 1",
        f"{place}/torch/utils/data/dataloader.py:431: UserWarning: This DataLoader will create 4",
        "  self.check_worker_number_rationality()",
        "  of these 3",
        f"{place}/lightning/pytorch/data_connector.py:434: The 'train_dataloader' does not have",
        "  loss 0.5",
        *own,
        f"{place}/sklearn/metrics.py prints 0.5",
    ]
    assert without_warnings(lines) == ["step 1", "  of these 3", "  loss 0.5", *own, lines[-1]]


@pytest.mark.parametrize(
    ("line", "places"),
    [
        ("epoch 3: loss 0.5, 304 MB", {2}),
        ("epoch 3: 304MiB of 16GB, 640 rows", {1, 2}),
        ("peak_memory_mb=304 samples=640", {0}),
        ("rss: 304.5, seen 640", {0}),
        ("disk 120 MB/s", set()),
        ("640 members seen", set()),
    ],
)
def test_which_numbers_of_a_line_are_of_memory(line, places):
    assert memory_places(without_numbers(line)) == places


def test_names_of_numbers_that_are_of_memory():
    of_memory = ("peak_memory_mb", "gpu.mem", "RSS", "epoch #: # MB (2)", "#,#,# (3 memory_mb)")
    others = ("members", "memorised", "epoch #: # MB (1)", "place", "#,# (2)")
    assert all(map(tells_memory, of_memory))
    assert not any(map(tells_memory, others))
