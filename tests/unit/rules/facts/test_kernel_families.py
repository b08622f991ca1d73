"""What kernels' names tell."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuadvisor.rules.facts.kernel_families import (
    Family,
    bare_name,
    kind_of,
    ncu_filter,
    readable,
    short_name,
)

ATEN = "void at::native::"


@pytest.mark.parametrize(
    ("name", "family", "tensor_cores", "precision"),
    [
        ("volta_sgemm_128x32_nt", Family.GEMM, False, "fp32"),
        ("ampere_sgemm_64x32_sliced1x4_nn", Family.GEMM, False, "fp32"),
        ("void sgemm_largek_lds64<true, false, 5, 5>(float*)", Family.GEMM, False, "fp32"),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize256x64x8_stage3_ffma_aligna4_alignc4",
            Family.GEMM,
            False,
            "fp32",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(Params)",
            Family.GEMM,
            False,
            "fp32",
        ),
        ("cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1", Family.GEMM, True, "tf32"),
        (
            "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x32",
            Family.GEMM,
            True,
            "tf32",
        ),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", Family.GEMM, True, "fp16"),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", Family.GEMM, True, "fp16"),
        ("volta_fp16_sgemm_fp16_128x64_nn", Family.GEMM, False, "fp16"),
        (
            "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8",
            Family.GEMM,
            True,
            "bf16",
        ),
        ("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT", Family.GEMM, True, None),
        ("ampere_dgemm_128x64_nn", Family.GEMM, False, "fp64"),
        ("sm80_xmma_gemm_f64f64_f64f64_f64_nn_n_tensor8x8x4", Family.GEMM, True, "fp64"),
        ("void gemv2T_kernel_val<int, int, float, float, float>(int)", Family.GEMM, None, "fp32"),
        ("void splitKreduce_kernel<float, float>(int)", Family.GEMM, None, "fp32"),
        ("Cijk_Alik_Bljk_BBS_BH_MT128x128x64", Family.GEMM, None, None),
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int>(int)", Family.EMBEDDING, None, None),
        (
            "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_g1_ffma_aligna4",
            Family.CONVOLUTION,
            False,
            "fp32",
        ),
        (
            "sm90_xmma_dgrad_implicit_gemm_indexed_f32f32_tf32f32_f32_nhwckrsc_nhwc",
            Family.CONVOLUTION,
            True,
            "tf32",
        ),
        ("volta_scudnn_128x64_relu_interior_nn_v1", Family.CONVOLUTION, False, "fp32"),
        (
            "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)",
            Family.CONVOLUTION,
            False,
            "fp32",
        ),
        (
            "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)",
            Family.CONVOLUTION,
            None,
            "fp32",
        ),
        (
            f"{ATEN}(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(int)",
            Family.CONVOLUTION,
            None,
            "fp32",
        ),
        (
            "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float>(int)",
            Family.LAYOUT,
            None,
            "fp32",
        ),
        ("void pytorch_flash::flash_fwd_kernel<64, 128>(int)", Family.ATTENTION, None, None),
        (  # a lambda in a function with doubles, which counts whole numbers
            "void cub::DeviceReduceKernel<Policy<unsigned long>, graupel(double &,"
            " std::vector<double, std::allocator<double>>&)::[lambda(unsigned long) (instance 1)]"
            ">(T1)",
            Family.REDUCTION,
            None,
            None,
        ),
        (
            "fmha_cutlassF_f32_aligned_64x128_rf_sm80(PyTorchMemEffAttention::Params)",
            Family.ATTENTION,
            None,
            "fp32",
        ),
        (
            f"{ATEN}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<double> >(int)",
            Family.ELEMENTWISE,
            None,
            "fp64",
        ),
        (
            f"{ATEN}(anonymous namespace)::cunn_SoftMaxForward<4, c10::Half>(c10::Half*)",
            Family.SOFTMAX,
            None,
            "fp16",
        ),
        (
            f"{ATEN}(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int)",
            Family.NORMALIZATION,
            None,
            "bf16",
        ),
        (
            f"{ATEN}(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2> >(int)",
            Family.OPTIMIZER,
            None,
            None,
        ),
        (f"{ATEN}reduce_kernel<512, 1, ReduceOp<float> >(int)", Family.REDUCTION, None, "fp32"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", Family.COMMUNICATION, None, "fp32"),
        (
            "_Z20magma_sgemmEx_kernelIfffLb1ELb0ELi6ELi4ELi6ELi3ELi4EEviii6TensoriS0_iS0_iiiPKT_S3_S1_"
            "S1_i18cublasLtEpilogue_tiPKvx",
            Family.GEMM,
            False,
            "fp32",
        ),
        ("void reduceScatterKernel<Args>(Args)", Family.COMMUNICATION, None, None),
        ("void warpAllReduceKernel<float>(float*)", Family.OTHER, None, "fp32"),
        ("triton_poi_fused_convolution_gemm_0", Family.OTHER, None, None),
        ("my_kernel(float const*, double)", Family.OTHER, None, None),
        ("julia_scan_12(CuDeviceArray<Float64, (int)3, (int)1>)", "other", None, "fp64"),
        ("julia_scan_12(CuDeviceArray<Float32, (int)3, (int)1>)", "other", None, "fp32"),
    ],
)
def test_a_name_tells(name, family, tensor_cores, precision):
    kind = kind_of(name)
    assert (kind.family, kind.tensor_cores, kind.precision) == (family, tensor_cores, precision)


NAMES = json.loads((Path(__file__).parents[3] / "data" / "kernel_names.json").read_text("utf-8"))
"""Names of kernels by what they do, each with where it was read: the traces that
HolisticTraceAnalysis and TraceLens test with (torch 1.12 to 2.9; V100, A100, H100, B200, MI210 to
MI355) and public pages. Sorted into families by hand."""


@pytest.mark.parametrize("family", NAMES)
def test_names_of_many_versions_belong_to_their_family(family):
    found = {name: str(kind_of(name).family) for name, _ in NAMES[family]}
    assert {name: other for name, other in found.items() if other != family} == {}


LINKED = {
    "_ZN5cudnn25bn_fw_tr_1C11_kernel_NCHWIffiLi128ELb1ELi1ELb1EEEv17cudnnTensorStructPKT_S1_PS2_": (
        "cudnn::bn_fw_tr_1C11_kernel_NCHW<cudnnTensorStruct>",
        "cudnn::bn_fw_tr_1C11_kernel_NCHW",
        Family.NORMALIZATION,
    ),
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPc": (
        "at::native::vectorized_elementwise_kernel<CUDAFunctor_add, array>",
        "vectorized_elementwise_kernel [CUDAFunctor_add]",
        Family.ELEMENTWISE,
    ),
    "_ZN2at6native40_GLOBAL__N__0b46c3ea_8_Shape_cu_85d9f36c19CatArrayBatchedCopyI10OpaqueType": (
        "at::native::CatArrayBatchedCopy<OpaqueType>",
        "CatArrayBatchedCopy",
        Family.COPY,
    ),
    "_Z23implicit_convolve_sgemmIffLi1024ELi5ELi5EEEviiiPKT_iPT0_S2_18kernel_conv_paramsyiff": (
        "implicit_convolve_sgemm<kernel_conv_params>",
        "implicit_convolve_sgemm",
        Family.CONVOLUTION,
    ),
    "_ZN5cudnn19engines_precompiled16nchwToNhwcKernelIfffLb0ELb1EL21cudnnKernelDataType_t2EEEv": (
        "cudnn::engines_precompiled::nchwToNhwcKernel<cudnnKernelDataType_t>",
        "cudnn::engines_precompiled::nchwToNhwcKernel",
        Family.LAYOUT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINKED)
def test_names_as_the_linker_has_them_are_read(name):
    told, short, family = LINKED[name]
    assert (readable(name), short_name(name), kind_of(name).family) == (told, short, family)
    assert bare_name(name) == short.partition(" ")[0].rpartition("::")[2]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("void saxpy<4>(int)", "saxpy"),
        ("__omp_offloading_31_18a8104__Z_1...", "'regex:^__omp_offloading_31_18a8104__Z_1'"),
        ("matmul$1(int)", "'matmul$1'"),
        ("void gemm<cutlass::thing, cutla...", "gemm"),
    ],
)
def test_ncu_is_asked_for_a_name_that_it_finds(name, told):
    assert ncu_filter(name) == told


def test_a_tag_of_numba_is_no_part_of_a_name():
    name = (
        "cudapy::__main__::svd_1_241[abi:cw51cXTLSUwv1kAPW1tQPAP9CY9GJAHUqIFJIBlt](Array<double>)"
    )
    assert short_name(name) == "cudapy::__main__::svd_1_241"
    assert readable(name) == "cudapy::__main__::svd_1_241(Array<double>)"
    assert ncu_filter(name) == "svd_1_241"


@given(st.text("ab<>()[]: .", max_size=40))
def test_any_brackets_are_read(name):
    assert bare_name(name) or not name


@given(st.one_of(st.text(max_size=60), st.text("ZN_0123456789LIEabc", max_size=60)))
def test_any_name_is_read(name):
    assert readable(name) == name or name.startswith("_Z") or "[abi:" in name
    assert readable("_Z" + name) and readable("_ZN" + name) and short_name("_ZN" + name)
