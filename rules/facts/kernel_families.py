"""What a kernel does, by its name: its family, whether it runs on tensor cores, its element type.

Names are those of PyTorch's own kernels, cuBLAS, cuDNN, CUTLASS, flash attention, FBGEMM, vLLM,
SGLang, FlashInfer, TensorRT-LLM and Transformer Engine; the first row of the table that fits
counts. What a name does not tell is None, and nothing is concluded from it: Triton's and a
program's own kernels are `OTHER`. The words `xmma_gemm` alone do not mean tensor cores: with `ffma`
they are plain FP32.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class Family(StrEnum):
    """Kernels that are cured in the same way."""

    GEMM = "gemm"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    """Fused: flash, memory-efficient, cuDNN's."""
    SOFTMAX = "softmax"
    NORMALIZATION = "normalization"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    LAYOUT = "layout"
    """Rearranges a tensor or converts its type for a library, and computes nothing."""
    OPTIMIZER = "optimizer"
    """Optimizer steps of several parameters at once."""
    COPY = "copy"
    POOLING = "pooling"
    EMBEDDING = "embedding"
    """Looks rows of tables up, or updates them."""
    SORT = "sort"
    """Sorts, scans, or picks places."""
    LIBRARY = "library"
    """Elementwise work that a library for serving or training has fused already, such as rotary
    embeddings, gated activations and quantization."""
    COMMUNICATION = "communication"
    OTHER = "other"


@dataclass(frozen=True)
class KernelKind:
    """What a name tells."""

    family: Family
    tensor_cores: bool | None = None
    """Whether a matrix product or convolution that could run on tensor cores does; None of
    others."""
    precision: str | None = None
    """Data type of what is computed, in the words of `Ceilings`: `fp32`, `tf32`, `fp16`, `bf16`,
    `fp64`."""


COMMUNICATION = re.compile(
    r"nccl\w*kernel|rccl_main_kernel|msccl\w*kernel|nvshmem|rocshmem|cross_device_reduce|multimem_"
    r"|(one|two)_?shot_\w*all_?reduce|all_?reduce_\w*(one|two)_?shot|allreduce_fusion_kernel"
    r"|\bk?userbuffers_|deep_ep\w*::(intra|inter)node\w*::|\bEp(Dispatch|Combine)|moe_?(A2A|all_?to_?all)"
    r"|(?<![a-z])(all_?(reduce|gather|to_?all)|reduce_?scatter)(v|_\w+)?_?kernel",
    re.IGNORECASE,
)
"""Names of kernels that exchange data between GPUs: NCCL's and RCCL's
(`ncclKernel_AllReduce_RING_LL_Sum_float`, `ncclDevKernel_...`, `rccl_main_kernel`), MSCCL's, those
of NVSHMEM and ROCSHMEM; the all-reduces of vLLM, FlashInfer, QuickReduce
(`quickreduce::allreduce_prototype_twoshot`) and PyTorch's symmetric memory; Transformer Engine's
`userbuffers_...`; the exchanges between experts of DeepEP (`deep_ep::internode_ll::dispatch`),
MORI (`EpDispatchInterNodeKernel`) and FlashInfer (`moeA2ADispatchKernel`); and whatever is called
after a collective (`ReduceScatterKernel`), but for reductions within a block
(`warpAllReduceKernel`)."""

_FAMILIES = (
    (Family.GEMM, r"_matmul_ogs|\bbmm_\w*_t\d+x\d+x\d+"),
    (Family.REDUCTION, r"native::reduce_kernel"),
    (Family.ELEMENTWISE, r"elementwise_kernel|fused_dropout_kernel|masked_scale_kernel"),
    (Family.COMMUNICATION, COMMUNICATION.pattern),
    (
        Family.ATTENTION,
        r"flash_(fwd|bwd)|flash_?attn|fmha|AttentionKernel|AttentionBackwardKernel"
        r"|native_sdpa|attn_(fwd|bwd)|(fwd|bwd)_attn|attention_kernel|unified_attention|paged_attention"
        r"|paged_mqa|flash_?mla|(Prefill|Decode)With(Paged|Ragged)KVCache|mha_varlen|sdpa_(fwd|bwd)"
        r"|(context|masked_multihead)_attention",
    ),
    (
        Family.EMBEDDING,
        r"embedding_(?!kernel_cuda)(bag|backward|codegen|lookup)|EmbeddingBag"
        r"|indexSelect(Large|Small)Index|vectorized_gather_kernel|embedding_kernel(?<!rotary_embedding_kernel)"
        r"|compute_grad_weight|permute_pooled_embs|fbgemm_gpu::|linearize_index"
        r"|bounds_check_indices",
    ),
    (
        Family.LIBRARY,
        r"moe::dev::|rotary_embedding|fused_rope|RopeQuant|ApplyRotary|rope_kernel"
        r"|act_and_mul|gated_act|silu_mul|swiglu|geglu|dgated|per_token_(group_)?quant|scaled_fp8_quant"
        r"|scaled_int8_quant|cvt_fp16_to_fp4|topkGating|moe_align|moe_sum|quantize_(kernel|with)"
        r"|cast_transpose|topk_softmax",
    ),
    (
        Family.LAYOUT,
        r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|convertTensor_kernel"
        r"|tensorTransformGeneric|transpose_readWrite|nchwToFoldedNhwc|foldedNhwcToNchw"
        r"|nhwcAddPadding|batched_transpose_\d|transpose_[CN]+HW2",
    ),
    (Family.POOLING, r"(max|avg|average)_?pool|pooling_(fw|bw)|adaptive_\w*pool"),
    (
        Family.CONVOLUTION,
        r"[fd]prop|[dw]grad|conv(?!ert)\w*(?:2d|3d)?|cudnn_|scudnn|winograd|implicit_gemm|igemm_(fwd|bwd|wrw)_gtc|_bwd_weight"
        r"|im2col|col2im",
    ),
    (
        Family.NORMALIZATION,
        r"norm(?!al_)|\bbn_|RowwiseMoments|GammaBeta|rmsnorm|ComputeInternalGradients|Compute(Backward)?FusedParams",
    ),
    (Family.SOFTMAX, r"soft_?max"),
    (
        Family.SORT,
        r"RadixSort|DeviceScan|DeviceSelect|DeviceMergeSort|DeviceSegmented\w*Sort"
        r"|bitonicSort|gatherTopK|sbtopk|mbtopk|tensor_kernel_scan|DeviceCompact",
    ),
    (Family.OPTIMIZER, r"multi_tensor_apply|Fused(Adam|Sgd|Adagrad)|(Adam|SGD|Lamb)Functor"),
    (
        Family.GEMM,
        r"(?<!fb)gemm|gemv|nvjet|splitKreduce|Cijk_|cublasLt|xmma|cublasTranspose"
        r"|\bbmm_\w*_t\d+x\d+x\d+|_matmul_ogs|matmul_kernel|fused_moe_kernel|marlin::|scaled_mm"
        r"|\bdot_kernel",
    ),
    (Family.REDUCTION, r"reduce_kernel|DeviceReduce"),
    (
        Family.COPY,
        r"CatArrayBatchedCopy|copy_kernel|CopyKernel|reshape_and_cache|store_kvcache"
        r"|copy_async_kernel|split_with_sizes_copy|chunk_cat_cuda|concat_and_cache",
    ),
)
NORMALIZES_NCHW = re.compile(r"bn_\w*NCHW|bn_(bw|fw_tr|fw_inf)_1C11")
"""cuDNN's batch normalisation of tensors in NCHW, with one block a channel."""
NATIVE_NCHW = re.compile(r"native::batch_norm_(?!\w*channels_last)\w*kernel")
"""PyTorch's own, which it takes under AMP: also with one block a channel."""
CASTS = re.compile(
    r"(Load|Store)WithCast|\b(b?float\d+|bfloat16tofloat32|float8)\w*_copy_kernel|\bcast_kernel",
    re.I,
)
"""PyTorch's kernels that do nothing but convert a tensor's type, or other work with such a
conversion: those without one are another instance of the same template."""
DEQUANTIZES = re.compile(r"de_?quanti[sz]e(?!_?(and|gemm|mat))|\bdequant_", re.I)
"""Kernels that write quantized weights as numbers of 16 or 32 bits: bitsandbytes'
`kDequantizeBlockwise`, llama.cpp's `dequantize_block_q4_0`, AWQ's `dequantize_weights`."""
RANDOM = re.compile(
    r"distribution_(nullary|elementwise|unary|binary)\w*kernel|curand|gen_sequenced|generate_seed_pseudo"
    r"|native::\w*(normal|uniform|random|bernoulli)_?\w*kernel",
    re.I,
)
"""Kernels of PyTorch and cuRAND that fill a tensor with random numbers."""
_COMPILED = tuple((family, re.compile(pattern, re.I)) for family, pattern in _FAMILIES)
_TRITON = re.compile(r"^triton_")

_HELPER = re.compile(
    r"splitKreduce|reduce_kernel|(?<!cublasLt)epilogue|gemv|gemmk1|gemm_kernel1x1|dot_kernel|depthwise"
    r"|grouped|[a-z]\w*4x4<|winograd\w*::generate|scal_kernel|workspace|computeOffsets|im2col"
    r"|col2im|fft|Cijk_|cublasTranspose|cutlass::device_kernel(?!.*[Ss][Mm]\d\d)",
    re.I,
)
"""Parts of a product that have no product in them, what tensor cores do not do (one vector,
depthwise), and what the name leaves open."""
ONE_VECTOR = re.compile(r"gemv|gemmk1|dot_kernel", re.I)
"""Products of a matrix or a vector with one vector: they read each element once, so that memory
limits them and not arithmetic."""
_PLAIN = re.compile(r"ffma|simt|hfma2")
_TENSOR = re.compile(
    r"884|1688|16816|161616|16832|16864|hmma|imma|gmma|tensorop|_tensor\d|nvjet|tf32"
    r"|bf16bf16|f16f16_f16|e4m3|e5m2|i8i8"
)
_NO_TENSOR = re.compile(
    r"[sdhc]gemm|scudnn|_alg\d_engine|(?:dgrad|wgrad|fprop)\w*_engine|dgrad2d_alg|winograd",
    re.I,
)
_PRECISIONS = (
    ("fp64", re.compile(r"dgemm|d884|f64f64|<double\b|DeviceArray<Float64\b")),
    ("bf16", re.compile(r"bf16|bfloat16", re.I)),
    ("fp16", re.compile(r"fp16|(?<![a-z])f16|h884|h1688|h16816|__half|::Half|hgemm")),
    ("tf32", re.compile(r"tf32|s1688")),
    (
        "fp32",
        re.compile(r"sgemm|scudnn|f32f32_f32f32|<[^(]*\bfloat(?=[,>])|_f32_|DeviceArray<Float32\b"),
    ),
)


_AROUND = re.compile(r"\([^()]*\)::")
"""The parameters of the function in which a lambda stands, which need not be what the lambda
computes with: `graupel(std::vector<double>&)::[lambda(unsigned long)]` may count whole numbers."""
_ARRAY_OF_DOUBLES = re.compile(r"[(,] *(?:const )?double(?: const)? ?[*&]")
_ARRAY_OF_SHORTER = re.compile(r"\b(?:float\d?|__half2?|__nv_bfloat16)(?: const)? ?[*&]")
_LENGTH = re.compile(r"\d+")
_NUMBERED = re.compile(r"[ST][0-9A-Z]*_|L[a-z]n?\d+E")
"""What was named before, by its number, and numbers among the arguments of a template."""
_VALUE = re.compile(r"n?\d+E")
"""The number of an enumeration's value, behind its type."""


def readable(name: str) -> str:
    """Return a kernel's name as C++ has it, if the trace has it as the linker does (PyTorch on
    Windows): `at::native::elementwise_kernel<AddFunctor>`, with what is named among the arguments
    of its template; other names as they are, without the tag that Numba gives those of its
    functions. (Itanium C++ ABI, 5.1)"""
    if not name.startswith("_Z"):
        return _TAG.sub("", name)
    text = name[: _LONGEST + 2]
    nested = text.startswith("_ZN")
    parts, inner, at = list[str](), list[str](), 3 if nested else 2
    while (found := _counted(text, at)) is not None and (nested or not parts):
        part, at = found
        parts.append(part)
    while at < len(text):
        passed = _NUMBERED.match(text, at)
        found = None if passed else _counted(text, at)
        if found is not None:
            inner.append(found[0])
            value = _VALUE.match(text, found[1]) if text[at - 1] == "L" else None
            at = value.end() if value else found[1]
        else:
            at = passed.end() if passed else at + 1
    shown = [each for each in parts if not each.startswith("_GLOBAL__N_")]
    named = [each for each in dict.fromkeys(inner) if not each.startswith("_GLOBAL__N_")]
    if not shown:
        return name
    return "::".join(shown) + (f"<{', '.join(named)}>" if named else "")


def _counted(text: str, at: int) -> tuple[str, int] | None:
    """Return the identifier at a place of a linker's name, behind its length, and where it ends."""
    digits = _LENGTH.match(text, at)
    if digits is None or len(digits[0]) > 3:
        return None
    end = digits.end() + int(digits[0])
    part = text[digits.end() : end]
    return (part, end) if part.isidentifier() and end <= len(text) else None


_TELLING = 350
"""Characters of a name that tell its family: of 873 names of public traces all are the same with
more."""


@lru_cache(maxsize=16_384)
def kind_of(name: str) -> KernelKind:
    """Return what a kernel's name tells of it."""
    name = readable(name)
    family = Family.OTHER
    if not _TRITON.match(name):
        # What a kernel does stands at the begin; for thousands of characters follow types.
        head = name[:_TELLING]
        family = next((one for one, each in _COMPILED if each.search(head)), Family.OTHER)
    own = _AROUND.sub("::", name)
    precision = next((word for word, pattern in _PRECISIONS if pattern.search(own)), None)
    if family in (Family.GEMM, Family.CONVOLUTION):
        return KernelKind(family, _on_tensor_cores(name), precision)
    return KernelKind(family, None, precision)


def takes_doubles(name: str) -> bool:
    """Say whether a function of C++ takes arrays of 64-bit floats, and none of shorter floats:
    `step(double *, int *, double)`. What it computes with them its name does not tell."""
    own = _AROUND.sub("::", readable(name))
    return bool(_ARRAY_OF_DOUBLES.search(own)) and not _ARRAY_OF_SHORTER.search(own)


def _on_tensor_cores(name: str) -> bool | None:
    if _HELPER.search(name):
        return None
    if not _PLAIN.search(name) and _TENSOR.search(name):
        return True
    return False if _PLAIN.search(name) or _NO_TENSOR.search(name) else None


_TEMPLATE = re.compile(r"<[^<>]*>")
_TAG = re.compile(r"\[abi:\w+\]")
"""An ABI tag: Numba writes its options into one, some 90 characters."""
_NAMESPACES = re.compile(r"\(anonymous namespace\)::|\bat::native::|\bstd::")
_GENERIC = ("elementwise_kernel", "reduce_kernel", "multi_tensor_apply_kernel", "Kernel2")
"""Kernels of PyTorch and CUTLASS that do whatever their template says."""
_DOES = re.compile(r"\b(\w*(?:[Ff]unctor|Ops?\b|_kernel_cuda|cutlass_\d)\w*)")
"""What in a template tells what a kernel does."""
_DEEPEST = 12
_LONGEST = 2000
"""Characters of a kernel's name that are looked at; some traces have tens of thousands."""


def short_name(name: str) -> str:
    """Return a kernel's name as people call it: without its types, arguments and namespaces."""
    name = readable(name)
    text = _NAMESPACES.sub("", name[:_LONGEST]).removeprefix("void ")
    for _ in range(_DEEPEST):
        text, found = _TEMPLATE.subn("", text)
        if not found:
            break
    text = text.partition("(")[0].partition("<")[0].strip()
    if text.endswith(_GENERIC):
        does = next((found for found in _DOES.findall(name[:_LONGEST]) if found != text), "")
        text = f"{text} [{does}]" if does else text
    return text or name[:_LONGEST] or "(no name)"


def bare_name(name: str) -> str:
    """Return a kernel's bare name, which is what Nsight Compute filters by: of
    `void at::native::reduce<4, float>(int)` it is `reduce`, and of
    `std::enable_if<true, void>::type kernel<4>(int)`, whose result is a template too, `kernel`.

    The full names do not do: tools write the arguments of templates differently. A name that was
    cut off keeps the dots at its end.
    """
    whole = readable(name).replace("(anonymous namespace)", "").replace("<unnamed>", "").strip()
    words = [each for each in _outside_brackets(whole).split() if each not in _QUALIFIERS]
    return words[-1].rpartition("::")[2] if words and words[-1].rpartition("::")[2] else name


_BRACKETS = {"<": ">", "(": ")", "[": "]"}
_QUALIFIERS = ("const", "noexcept")


def _outside_brackets(text: str) -> str:
    """Return a name without the arguments of templates and functions, and without what compilers
    add in brackets; a comparison such as `(n > 4)` among them closes nothing."""
    kept, closing = list[str](), list[str]()
    for letter in text[:_LONGEST]:
        if letter in _BRACKETS:
            closing.append(_BRACKETS[letter])
        elif letter in closing and (letter != ">" or closing[-1] == ">"):
            while closing.pop() != letter:
                pass
        elif not closing:
            kept.append(letter)
    return "".join(kept)


CUT_OFF = "..."
"""What stands at the end of a name that a tool has cut off."""


def ncu_filter(name: str) -> str:
    """Return what `ncu -k` takes to profile this kernel, quoted for a shell: its bare name, or a
    pattern where only the begin of that is known."""
    bare = bare_name(name)
    if bare.endswith(CUT_OFF):
        return shlex.quote(f"regex:^{re.escape(bare.removesuffix(CUT_OFF))}")
    return shlex.quote(bare)
