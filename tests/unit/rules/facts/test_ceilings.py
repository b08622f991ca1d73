"""Theoretical ceilings are those of NVIDIA's data sheets; measured ones take their place."""

from __future__ import annotations

import pytest

from gpuadvisor.domain.ceiling import Ceiling
from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.rules.facts import gpu_specs
from gpuadvisor.rules.facts.ceilings import OPERATIONS_PER_CLOCK, theoretical
from gpuadvisor.rules.facts.gpu_specs import ARCHITECTURES


def device(name, capability, **facts):
    return DeviceLimits(0, name, capability, **facts)


@pytest.mark.parametrize(
    ("name", "capability", "tera"),
    [
        ("Tesla V100-SXM2-16GB", (7, 0), 125),
        ("Tesla T4", (7, 5), 65),
        ("NVIDIA A100-SXM4-80GB", (8, 0), 312),
        ("NVIDIA A10", (8, 6), 125),
        ("NVIDIA A10G", (8, 6), 70),
        ("NVIDIA A40", (8, 6), 149.7),
        ("NVIDIA GeForce RTX 3090", (8, 6), 71),
        ("NVIDIA GeForce RTX 4090", (8, 9), 165.2),
        ("NVIDIA L4", (8, 9), 121),
        ("NVIDIA L40", (8, 9), 181.05),
        ("NVIDIA H100 80GB HBM3", (9, 0), 989.4),
        ("NVIDIA H100 PCIe", (9, 0), 756),
        ("NVIDIA H100 NVL", (9, 0), 835.5),
        ("NVIDIA B200", (10, 0), 2243),
        ("NVIDIA GeForce RTX 5090", (12, 0), 209.5),
    ],
)
def test_dense_16_bit_operations_are_the_data_sheets(name, capability, tera):
    assert theoretical(device(name, capability)).get("fp16").value / 1e12 == pytest.approx(
        tera, rel=0.005
    )


@pytest.mark.parametrize(
    ("memory_mhz", "bits", "giga"),
    [
        (1215, 5120, 1555),  # A100 40 GB
        (1593, 5120, 2039),  # A100 80 GB
        (2619, 5120, 3352),  # H100 SXM
        (5001, 256, 320),  # T4
        (6251, 192, 300),  # L4
        (7251, 384, 696),  # A40
        (10501, 384, 1008),  # RTX 4090
        (14001, 512, 1792),  # RTX 5090
    ],
)
def test_memory_bandwidth_is_the_data_sheets(memory_mhz, bits, giga):
    found = theoretical(device("a GPU", None), memory_mhz * 1e6, bits).get("dram")
    assert found.value / 1e9 == pytest.approx(giga, rel=0.002)
    assert f"{memory_mhz:,} MHz x {bits} bits".replace("5120", "5,120") in found.source


def test_an_h100_of_a_trace_that_tells_only_its_name():
    found = theoretical(device("NVIDIA H100 80GB HBM3", (9, 0)))
    tera = {name: peak.value / 1e12 for name, peak in found.by_quantity.items()}
    assert tera == pytest.approx(
        {
            "dram": 3.352, "fp16": 989.4, "bf16": 989.4, "tf32": 494.7, "fp8": 1979,
            "int8": 1979, "fp32": 66.9, "fp64": 33.45, "fp64_tensor": 66.9,
        },
        rel=1e-3,
    )  # fmt: skip
    assert not any(peak.is_measured for peak in found.by_quantity.values())


def test_a_gpu_that_is_not_listed_goes_by_what_it_says():
    said = device(
        "NVIDIA H900",
        (9, 0),
        sm_count=100,
        clock_hz=2e9,
        memory_bandwidth_bytes_per_s=5e12,
    )
    found = theoretical(said)
    assert found.get("bf16").value == 100 * 4096 * 2e9
    assert found.get("int8").unit == "op/s"
    assert found.get("dram").value == 5e12


@pytest.mark.parametrize(
    ("unknown", "quantity"),
    [
        (device("NVIDIA H900", (9, 0), sm_count=100), "bf16"),  # no clock
        (device("NVIDIA H900", (9, 0), clock_hz=2e9), "bf16"),  # no SMs
        (device("NVIDIA H900", (9, 0), sm_count=-1, clock_hz=2e9), "bf16"),
        (device("NVIDIA H100 80GB HBM3 MIG 1g.10gb", (9, 0)), "dram"),
        (device("AMD Instinct MI300X", None), "fp16"),
        (device("NVIDIA GeForce GTX 1660", (7, 5), sm_count=22, clock_hz=2e9), "fp16"),
        (device("Tesla V100-SXM2-16GB", (7, 0)), "bf16"),
        (device("NVIDIA A100-SXM4-80GB", (8, 0)), "fp8"),
    ],
)
def test_what_cannot_be_known_is_left_out(unknown, quantity):
    assert theoretical(unknown).get(quantity) is None


def test_figures_that_nobody_has_seen_say_so():
    found = theoretical(device("NVIDIA B200", (10, 0)))
    assert "not verified" in found.get("tf32").source
    assert "not verified" not in found.get("bf16").source


def test_measured_ceilings_are_preferred():
    when = "2026-11-21T00:00:00+00:00"
    measured = {
        "dram": Ceiling("dram", 2.9e12, "bytes/s", when),
        "dram_add": Ceiling("dram_add", 3.0e12, "bytes/s", when),
        "bf16": Ceiling("bf16", 7.5e14, "flop/s", when),
        "fp16": Ceiling("fp16", 0.0, "flop/s", when),
    }
    found = theoretical(device("NVIDIA H100 80GB HBM3", (9, 0))).preferring(measured)
    assert (found.get("bf16").value, found.get("bf16").measured) == (7.5e14, when)
    assert found.get("dram").value == 3.0e12  # the faster of two ways of copying
    assert not found.get("fp16").is_measured
    assert not found.get("tf32").is_measured


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("h100", (9, 0)), ("GH200 480GB", (9, 0)), ("rtx 4090", (8, 9)), ("GB200", (10, 0)),
        ("GB10", (12, 1)), ("RTX 6000 Ada", (8, 9)), ("RTX A6000", (8, 6)), ("a100", (8, 0)),
        ("GTX 1660 Ti", (7, 5)), ("T4", (7, 5)), ("Voodoo", None), ("", None),
    ],
)  # fmt: skip
def test_compute_capability_by_name(name, capability):
    assert gpu_specs.capability(name) == capability


def test_tables_agree_with_each_other():
    assert set(OPERATIONS_PER_CLOCK) <= set(ARCHITECTURES)
    for gpu_spec in gpu_specs.GPU_SPECS:
        assert gpu_spec.tensor_mhz is None or gpu_spec.tensor_mhz < gpu_spec.boost_mhz
