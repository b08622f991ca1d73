"""Where the warps of kernels wait."""

import pytest

from gpuadvisor.rules.facts.stalls import LEAST_SHARE, MOST_SITES, TAKEN
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made


def made(*samples):
    """Samples: kernel, line or instruction, reason and number."""
    profile = Made()
    for number, name in enumerate(("gemm", "gemm", "softmax")):
        profile.row("kernels", name=name, device=0, duration_ns=1000)
        time = "gpu__time_duration.sum"
        profile.row("metrics", kernel=number, metric=time, value=1e-6 * (3 - number), unit="s")
    for kernel, place, reason, count in samples:
        told = {"instruction" if place.startswith("+") else "line": place}
        profile.row("stalls", kernel=kernel, reason=reason, samples=count, **told)
    return profile.profile(source="ncu", not_measured={"kernels.begin_ns": "one by one"})


def test_launches_of_a_name_count_together_with_those_that_issued():
    stalls = Facts(
        made(
            (0, "gemm.cu:9", "long_scoreboard", 30),
            (1, "gemm.cu:9", "long_scoreboard", 10),
            (1, "gemm.cu:9", "selected", 50),
            (1, "gemm.cu:12", "barrier", 10),
            (2, "+0x20 FADD", "wait", 5),
        )
    ).kernel_stalls
    first, second = stalls["gemm"].sites
    assert stalls["gemm"].samples == 100
    assert (first.line, first.reason, first.samples, first.share) == (
        "gemm.cu:9", "long_scoreboard", 40, 0.4)  # fmt: skip
    assert (second.line, second.waits) == ("gemm.cu:12", "at barriers")
    (only,) = stalls["softmax"].sites
    assert (only.line, only.instruction, only.share) == ("", "+0x20 FADD", 1.0)


def test_few_samples_are_not_named_and_no_more_places_than_one_can_read():
    few = [(0, f"a.cu:{line}", "wait", 1) for line in range(100)]
    many = [(2, f"b.cu:{line}", "wait", 10) for line in range(10)]
    stalls = Facts(made(*few, *many)).kernel_stalls
    assert LEAST_SHARE > 0.01
    assert stalls["gemm"].sites == ()
    assert len(stalls["softmax"].sites) == MOST_SITES


@pytest.mark.parametrize("taken", [2_000, None])
def test_a_report_with_some_reasons_has_shares_of_all_samples_or_none(taken):
    """Where only branches were kept, 100 of 2,000 samples are not "100 % for branches"."""
    profile = Made()
    profile.row("kernels", name="gemm", device=0, duration_ns=1000)
    kept = "smsp__pcsamp_warps_issue_stalled_branch_resolving"
    told = {kept: 150} if taken is None else {kept: 150, TAKEN: taken}
    for metric, value in told.items():
        profile.row("metrics", kernel=0, metric=metric, value=value, unit="")
    for line, count in (("a.cu:1", 140), ("a.cu:2", 10)):
        profile.row("stalls", kernel=0, reason="branch_resolving", samples=count, line=line)
    stalls = Facts(profile.profile(source="ncu")).kernel_stalls
    if taken is None:
        assert stalls == {}
        return
    assert stalls["gemm"].samples == taken
    (site,) = stalls["gemm"].sites
    assert (site.line, site.share) == ("a.cu:1", 0.07)


@pytest.mark.parametrize(
    ("some", "of_all", "low", "high"),
    [(5, 14, 0.163, 0.612), (140, 1_400, 0.085, 0.117), (14, 14, 0.785, 1.0)],
)
def test_a_share_is_known_as_well_as_it_was_sampled(some, of_all, low, high):
    rest = [(0, "a.cu:2", "selected", of_all - some)]
    ((site,), total) = _of(made((0, "a.cu:1", "wait", some), *rest))
    assert total == of_all
    assert (site.low, site.high) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))


def test_of_few_samples_a_share_that_may_be_next_to_nothing_is_not_named():
    (site,), _ = _of(
        made((0, "a.cu:1", "wait", 5), (0, "a.cu:2", "wait", 1), (0, "a.cu:3", "selected", 8))
    )
    assert site.line == "a.cu:1"


def _of(profile):
    found = Facts(profile).kernel_stalls["gemm"]
    return found.sites, found.samples


def test_reasons_that_nobody_puts_into_words_are_nsight_computes():
    stalls = Facts(made((0, "a.cu:1", "gmma", 9), (0, "a.cu:2", "no_instructions", 8)))
    assert [each.waits for each in stalls.kernel_stalls["gemm"].sites] == [
        "(gmma)", "for instructions to be fetched"]  # fmt: skip


def test_waiting_for_the_queue_of_textures_may_be_for_doubles():
    (site,), _ = _of(made((0, "+0x20 DADD R4, R6, R4", "tex_throttle", 900)))
    assert "doubles" in site.waits


def test_a_sample_of_no_kernel_is_none():
    assert Facts(made((7, "a.cu:1", "wait", 9), (-1, "a.cu:1", "wait", 9))).kernel_stalls == {}
