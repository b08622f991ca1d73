"""A profile's page: complete in itself, well formed, and honest whatever the profile holds."""

import re

import pytest

from gpuadvisor.domain.profile import Range
from gpuadvisor.reports.profile.document import profile_html, profile_markdown
from gpuadvisor.rules.facts.kernel_families import short_name
from tests import pages
from tests.pages import Page
from tests.profile_reports import GEMM, PROFILES, V100, counted, report, sampled, whole
from tests.profiles import Made


@pytest.fixture(scope="module", params=PROFILES, ids=lambda name: name.replace(" ", "_"))
def content(request):
    return profile_html(report(PROFILES[request.param]()))


def page(profile):
    return Page(profile_html(report(profile)))


class TestEveryPage(pages.Checks):
    """Of each profile."""


def test_the_whole_page_has_a_section_for_each_question():
    read = page(whole())
    for title in ("Where the time goes", "Steps", "Timeline", "Kernels", "Roofline", "Operators",
                  "Memory", "Copies", "Communication", "Launching", "Not measured"):  # fmt: skip
        assert title in read.said


def test_a_profile_without_a_gpu_says_so_once_and_what_a_step_took():
    made = Made()
    for step in range(4):
        made.range(f"ProfilerStep#{step}", (1000 * step, 1000), Range.STEP)
        made.range(
            "enumerate(DataLoader)#_SingleProcess.__next__", (1000 * step, 250), Range.LOADER
        )
    text = profile_markdown(report(made.profile()))
    assert "**Nothing that ran on a GPU was recorded** (" in text
    assert "A step takes 1.00 ms in the median, and 25.0 % of the steps' time is waiting" in text
    assert "waiting for a DataLoader." in text
    assert "othing that ran on a device was recorded" not in text.partition("####")[0]


def test_the_parts_of_the_time():
    text = page(whole()).text
    # From the begin of the first step to the end of the last one.
    assert "34.0 % of the run the GPU was busy" in text
    assert "computing: other 20.0 % 800 µs" in text
    assert "communicating only 10.0 % 400 µs" in text
    assert "copying only 4.00 % 160 µs" in text
    assert "idle: waiting for data 30.0 % 1.20 ms" in text


def test_occupancy_and_its_limiter_are_ours_where_kinetos_is_zero():
    text = page(whole()).text
    # 100,000 bytes a block let 2 blocks of 4 warps on an SM of 64 warps: 12.5 %.
    assert "12.5 % shared memory the trace says 0 %" in text
    assert "which is wrong" in text


def test_a_kernel_within_48_kib_is_no_case_of_kinetos_zero():
    assert "the trace says 0 %" not in page(counted()).text


def test_what_is_not_known_is_no_zero():
    text = page(whole(devices=())).text
    assert "Occupancy" in text
    assert "not measured" in text
    assert "0 % shared memory" not in text


def test_not_measured_says_why_and_how():
    text = page(whole(not_measured={"operators.stack": "it was recorded without stacks"})).text
    assert "operators: stack it was recorded without stacks with_stack=True" in text


def test_counted_kernels_have_no_timeline_but_a_roofline():
    read = page(counted())
    assert "Timeline" not in read.said
    assert "Where the time goes" not in read.said
    assert "Roofline" in read.said
    assert "8.00 TFLOP/s" in read.text
    assert "there is no timeline" in read.text


def test_devices_and_lanes_beyond_what_can_be_drawn_are_counted():
    text = page(PROFILES["many devices"]()).text
    assert "4 more devices not drawn" in text
    assert "lanes with less to do not drawn" in text


def test_where_the_cpu_was_sampled_stands_below_the_account():
    said = "\n".join(page(sampled()).said)
    for text in ("read_csv of libparse.so", "89 to 100 %", "32 samples of the CPU"):
        assert text in said
    assert "samples of the CPU" not in "\n".join(page(whole()).said)


def test_the_page_stays_small_however_many_events_there_are():
    few, many = (len(profile_html(report(whole(number=n)))) for n in (20, 2000))
    assert many < 2 * few


def test_names_cannot_become_markup():
    content = profile_html(report(PROFILES["hostile"]()))
    assert "<script" not in content
    assert "&lt;script&gt;" in content
    assert "\x1b" not in content


def test_names_cannot_become_markdown():
    text = profile_markdown(report(PROFILES["hostile"]()))
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert not re.search(r"(?<!\\)<(?!/?(details|summary)>)", outside)
    assert "\x1b" not in text
    for line in text.splitlines():
        if line.startswith("| "):
            assert line.endswith(" |")


def test_markdown_says_the_same():
    text = profile_markdown(report(whole()))
    assert "**34.0 % of the run the GPU was busy**" in text
    assert "| idle: waiting for data | 30.0 % | 1.20 ms |" in text
    assert "12.5 % (shared memory; the trace says 0 %)" in text


def test_a_device_of_another_kind():
    # 96 KiB of shared memory an SM: a block of 100,000 bytes does not fit.
    assert "0 % shared memory" in page(whole(devices=(V100,))).text


SHORT = [
    (GEMM, "cutlass::Kernel"),
    ("void (anonymous namespace)::softmax<float, (int)3>(float*)", "softmax"),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >()",
        "vectorized_elementwise_kernel [CUDAFunctor_add]",
    ),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(R)",
     "reduce_kernel [ReduceOp]"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64>(P)",
     "cutlass::Kernel2 [cutlass_80_tensorop_s1688gemm_64x64]"),
    ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
    ("<<<<", "<<<<"),
    ("", "(no name)"),
    ("<" * 100_000, "<" * 2000),
]  # fmt: skip


@pytest.mark.parametrize(("name", "short"), SHORT)
def test_short_names(name, short):
    assert short_name(name) == short
