"""`gpuadvisor bench-device` on a real GPU. Run with `pytest -m gpu`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    done = subprocess.run(
        [sys.executable, "-m", "gpuadvisor", "bench-device", "--json"],
        env={**os.environ, "GPUADVISOR_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    print(done.stdout)  # the figures, for who runs it with -s
    return document, {entry["quantity"]: entry for entry in document["rates"]}, home


def test_no_ceiling_is_above_what_is_possible(bench):
    _, rates, _ = bench
    compared = {name: entry["ratio"] for name, entry in rates.items() if entry["ratio"] is not None}
    assert {"dram", "dram_add", "fp16", "fp32"} <= set(compared)
    assert {name: ratio for name, ratio in compared.items() if ratio > 1.09} == {}


def test_large_copies_and_products_come_near_it(bench):
    _, rates, _ = bench
    assert rates["dram_add"]["ratio"] > 0.7
    assert rates["fp16"]["ratio"] > 0.4


def test_kinds_of_access_stand_in_their_order(bench):
    _, rates, _ = bench
    memory = {name: entry["value"] for name, entry in rates.items() if entry["unit"] == "bytes/s"}
    assert memory["dram"] > 2 * memory["dram_random"]
    assert memory["dram"] > 2 * memory["dram_strided"]
    assert memory["dram"] > memory["host_to_device_pinned"]
    assert memory["host_to_device_pinned"] > memory["host_to_device_pageable"]


def test_precisions_stand_in_their_order(bench):
    _, rates, _ = bench
    assert rates["fp16"]["value"] > rates["fp32"]["value"]
    if "tf32" in rates:
        assert rates["bf16"]["value"] > rates["tf32"]["value"] > rates["fp32"]["value"]


def test_launches(bench):
    _, rates, _ = bench
    assert rates["launches"]["value"] > rates["operators"]["value"]
    assert rates["launch_latency"]["value"] > 1 / rates["launches"]["value"]


def test_an_h100_reaches_what_others_measured(bench):
    document, rates, _ = bench
    if "H100 80GB HBM3" not in document["device"]:
        pytest.skip("needs an H100 SXM")
    assert 2.6e12 < rates["dram_add"]["value"] < 3.36e12
    assert 5.5e14 < rates["bf16"]["value"] < 9.9e14
    assert rates["fp8"]["value"] > 1.4 * rates["bf16"]["value"]
    assert "int8" in rates


def test_it_is_stored_and_takes_no_minute(bench):
    document, rates, home = bench
    from gpuadvisor.storage.profiles.library import open_profiles

    assert document["seconds"] < 60
    with open_profiles(home / "gpuadvisor.db") as profiles:
        stored = profiles.newest_ceilings(uuid=document["uuid"])
    assert {name: each.value for name, each in stored.items()} == {
        name: entry["value"] for name, entry in rates.items()
    }
