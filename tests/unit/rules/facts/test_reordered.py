"""Kernels that meet images in two orders of memory, and such as only look like it."""

import pytest

from gpuadvisor.rules.catalogue import layout_conversion, unfused_elementwise
from gpuadvisor.rules.facts.reordered import reordered
from tests.rules.queued import K, queued

CONVERT = "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false>(int)"
CONVOLVE = "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64"
STRIDED = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native"
)
COPY = f"{STRIDED}::direct_copy_kernel_cuda(at::TensorIteratorBase&)> >(int)"
ADD = f"{STRIDED}::CUDAFunctor_add<c10::BFloat16> >(at::TensorIteratorBase&)>(int)"
PLAIN_ADD = "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add>(int)"
OF_CONVOLUTION = "[[32, 768, 28, 28], [768, 768, 3, 3], [], [], [], [], []]"
PIXELS = "[[32, 784, 768], [32, 784, 768], []]"


def network(*beside):
    """Two blocks with a convolution of images of 32 x 768 x 28 x 28, and kernels beside it."""
    block = [
        K(CONVERT, 100, "aten::cudnn_convolution", OF_CONVOLUTION),
        K(CONVOLVE, 500, "aten::cudnn_convolution", OF_CONVOLUTION),
        *beside,
    ]
    return queued(block * 2)


def found(*beside):
    uses = network(*beside).known_facts.kernel_uses
    told = reordered(uses, uses.of("layout"))
    return [each.name for each in told.copies], [each.name for each in told.others]


def test_copies_of_images_and_sums_of_two_orders_are_told_apart():
    beside = K(COPY, 100, "aten::copy_", PIXELS), K(ADD, 100, "aten::add", PIXELS)
    assert found(*beside) == ([COPY], [ADD])


def test_tensors_of_another_size_are_no_images():
    assert found(K(COPY, 100, "aten::copy_", "[[32, 785, 768], [32, 785, 768], []]")) == ([], [])


def test_a_value_that_is_spread_over_an_image_has_no_order():
    assert found(K(ADD, 100, "aten::div", "[[32, 784, 768], []]")) == ([], [])


def test_operands_in_one_order_are_none_in_two():
    assert found(K(PLAIN_ADD, 100, "aten::add", PIXELS)) == ([], [])


def test_without_conversions_there_are_no_images():
    uses = queued([K(COPY, 100, "aten::copy_", PIXELS)] * 3).known_facts.kernel_uses
    assert reordered(uses, uses.of("layout")).copies == ()


def worth_ns(rule, evidence):
    return [each.saving.high_ns for each in rule.check(evidence) if each.saving is not None]


def test_they_are_the_layouts_saving_and_not_that_of_fusing():
    copies = [K(COPY, 100, "aten::copy_", PIXELS)] * 3
    (with_copies,) = worth_ns(layout_conversion, network(*copies))
    (without,) = worth_ns(layout_conversion, network())
    assert with_copies > 2 * without
    assert worth_ns(unfused_elementwise, network(*copies)) == [0.0]


PAD = "void nhwcAddPaddingKernel<__nv_bfloat16, __nv_bfloat16, float, true>(int)"
STEM = "[[128, 3, 112, 112], [512, 3, 4, 4], [], [], [], [], []]"


def stem(conversion, shapes, *beside):
    """A long convolution with hardly anything around it, and kernels beside it."""
    return queued(
        [K(conversion, 5, "aten::cudnn_convolution", shapes), K(CONVOLVE, 900), *beside] * 2
    )


def test_few_conversions_are_named_for_the_copies_of_images_that_come_with_them():
    beside = K(COPY, 90, "aten::copy_", PIXELS)
    assert worth_ns(layout_conversion, stem(CONVERT, OF_CONVOLUTION, beside))
    assert not worth_ns(layout_conversion, stem(CONVERT, OF_CONVOLUTION))


def test_padded_channels_tell_of_no_other_order():
    copy = K(COPY, 90, "aten::copy_", "[[128, 3, 112, 112], [128, 3, 112, 112], []]")
    assert not worth_ns(layout_conversion, stem(PAD, STEM, copy))


@pytest.mark.parametrize(
    "shapes",
    [
        "[[1024, 64, 1024], [1024, 64, 1088], [64, 64, 3], [], [], []]",
        "[[1024, 64, 1, 1024], [64, 64, 1, 3], [], [], [], []]",  # as cuDNN gets it
    ],
)
def test_series_are_told_of_images_of_height_one_and_no_knob_is_named(shapes):
    (said,) = layout_conversion.check(
        stem(CONVERT, shapes, K(CONVERT, 90, "aten::cudnn_convolution", shapes))
    )
    assert "height 1" in said.advice
    assert said.knobs == ()


def test_images_are_told_of_channels_last():
    (said,) = layout_conversion.check(
        stem(CONVERT, OF_CONVOLUTION, K(CONVERT, 90, "aten::cudnn_convolution", OF_CONVOLUTION))
    )
    assert "model.to(memory_format" in said.advice
    assert said.knobs is None


VOLUMES = "[[4, 4, 128, 128, 128], [32, 4, 2, 2, 2], [], [], [], []]"


def test_volumes_are_told_of_channels_last_3d():
    (said,) = layout_conversion.check(
        stem(CONVERT, VOLUMES, K(CONVERT, 90, "aten::cudnn_convolution", VOLUMES))
    )
    assert "torch.channels_last_3d" in said.advice and "images" not in said.advice
    assert said.knobs is None


def test_both_layouts_are_told_where_shapes_are_unknown():
    (said,) = layout_conversion.check(stem(CONVERT, "", K(CONVERT, 90, "", "")))
    assert "torch.channels_last)" in said.advice and "channels_last_3d" in said.advice
