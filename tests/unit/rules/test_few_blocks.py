"""What is promised of kernels of few blocks, and of casts that the host has to launch."""

import pytest

from gpuadvisor.rules.catalogue import layout_conversion, mixed_precision_off
from tests.rules.cases.layout_conversion import CONVERT, CONVOLVE, NORMALISE
from tests.rules.queued import K, grid, queued

PRODUCT = "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x64"


def worth(check, kernels):
    """What the rule promises, as shares of all kernels' time."""
    (found,) = check(queued(kernels * 8))
    total_ns = 8e3 * sum(each.us for each in kernels)
    return found.saving.low_ns / total_ns, found.saving.high_ns / total_ns


@pytest.mark.parametrize("channels, most", [(16, 1 - 16 / 132), (64, 0.6), (512, 0.6)])
def test_normalisation_of_few_channels_in_nchw_may_gain_what_multiprocessors_have_none(
    channels, most
):
    """A speaker network on an H200, 47 % of whose kernel time is batch normalisation of 16 to 128
    channels: channels_last saved 27.8 % of the step, of which conversions are 6 %."""
    kernels = [
        K(CONVERT, 100),
        K(CONVOLVE, 400),
        K(NORMALISE, 500, more=grid(channels)),
    ]
    low, high = worth(layout_conversion.check, kernels)
    assert low == pytest.approx(0.05, abs=0.01)
    assert high == pytest.approx(0.1 + 0.5 * most, rel=0.04)


@pytest.mark.parametrize("blocks, least", [(20, 0.0), (65, 0.0), (66, 0.22), (132, 0.22)])
def test_nothing_is_sure_of_products_that_leave_most_multiprocessors_idle(blocks, least):
    """The same network: gradients of weights in TF32, of 20 blocks; bfloat16 saved 1.4 % (-2.0 to
    3.9)."""
    low, high = worth(mixed_precision_off.check, [K(PRODUCT, 1000, more=grid(blocks))])
    assert low == pytest.approx(least, abs=0.01)
    assert high > 0.5


@pytest.mark.parametrize("pace, least", [(10, 0.22), (90, 0.0)])
def test_casts_are_launched_too(pace, least):
    """A Transformer that its host limits took 8.8 ms under autocast instead of 7.4."""
    (found,) = mixed_precision_off.check(queued([K(PRODUCT, 100)] * 50, pace=pace))
    assert found.saving.low_ns / 5e6 == pytest.approx(least, abs=0.01)
