"""Conversions around convolutions, few and many."""

from tests.rules.cases.misaligned_gemm import ODD_CHANNELS, PAD, convolutions
from tests.rules.queued import MI300, K, queued

CONVERT = "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false>(int)"
CONVOLVE = "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64"
NORMALISE = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<__half2, float, int, 512, true, 1, true>(float)"

NATIVE = "void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, c10::Half>(int)"
CHANNELS_LAST = (
    "void at::native::batch_norm_collect_statistics_channels_last_kernel<at::native::InvStd>(int)"
)


def under_amp(name=NATIVE):
    """A network of whose kernel time half is batch normalisation."""
    return queued([K(CONVERT, 100), K(CONVOLVE, 370), K(name, 530)] * 4)


FIRES = {
    "with PyTorch's own normalisation": under_amp,
    "many": lambda: queued([K(CONVERT, 100), K(CONVOLVE, 300), K(CONVERT, 100)] * 4),
    "just enough": lambda: queued([K(CONVERT, 31), K(CONVOLVE, 969)] * 4),
    "with normalisation": lambda: queued([K(CONVERT), K(CONVOLVE), K(NORMALISE)] * 4),
}
SILENT = {
    "the padding of odd channels": lambda: convolutions(PAD, ODD_CHANNELS),
    "few": lambda: queued([K(CONVERT, 19), K(CONVOLVE, 981)] * 4),
    "none": lambda: queued([K(CONVOLVE, 300), K(NORMALISE, 100)] * 4),
    "without convolutions": lambda: queued([K(CONVERT, 100)] * 4),
    "an AMD GPU": lambda: queued([K(CONVERT, 100), K(CONVOLVE, 300)] * 4, MI300),
}
