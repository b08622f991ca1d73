"""Conversions of types: many, few, and copies that convert nothing."""

from tests.rules.queued import K, queued

COPY = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::"
    "TensorIteratorBase&)::{lambda(c10::BFloat16)#1}, at::detail::Array<char*, 2>, {}>(int)"
)
CAST = COPY.replace("{}", "at::native::memory::LoadWithCast<1>")
PLAIN = COPY.replace("{}", "at::native::memory::LoadWithoutCast")
UNPACK = "void kDequantizeBlockwise<__half, 512, 64, 8, 2>(float*, unsigned char*, float*, __half*)"
ADDS = CAST.replace("direct_copy_kernel_cuda", "CUDAFunctor_add")
PRODUCT = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
JOINED = "void dequantize_gemm_kernel<__half>(int)"

FIRES = {
    "conversions": lambda: queued([K(CAST, 200), K(PRODUCT, 800)] * 4),
    "weights that are unpacked": lambda: queued([K(UNPACK, 200), K(PRODUCT, 800)] * 4),
    "both": lambda: queued([K(UNPACK, 230), K(CAST, 260), K(PRODUCT, 510)] * 4),
    "just enough": lambda: queued([K(CAST, 101), K(PRODUCT, 899)] * 4),
}
SILENT = {
    "few": lambda: queued([K(CAST, 99), K(PRODUCT, 901)] * 4),
    "copies within one type": lambda: queued([K(PLAIN, 300), K(PRODUCT, 700)] * 4),
    "sums that convert as well": lambda: queued([K(ADDS, 300), K(PRODUCT, 700)] * 4),
    "products that unpack themselves": lambda: queued([K(JOINED, 300), K(PRODUCT, 700)] * 4),
}
