"""Headers of C that CUDA C++ includes and NVRTC has not: what a kernel needs of them.

NVRTC knows `printf`, `assert`, `malloc`, `memcpy` and the functions of `math.h` without a header,
and fails where a text includes the host's, as nvcc would let it. Limits are those of CUDA's types:
IEEE 754 for `float` and `double`, 32 bits for `int`, 64 for `long` and `size_t` on Linux.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

TARGET_MODULES = ("*",)

_FLOAT = """
#define FLT_RADIX 2
#define FLT_MANT_DIG 24
#define DBL_MANT_DIG 53
#define FLT_DIG 6
#define DBL_DIG 15
#define FLT_MIN 1.17549435e-38f
#define FLT_MAX 3.40282347e+38f
#define FLT_EPSILON 1.19209290e-07f
#define DBL_MIN 2.2250738585072014e-308
#define DBL_MAX 1.7976931348623157e+308
#define DBL_EPSILON 2.2204460492503131e-16
"""
_LIMITS = """
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295U
#define LONG_MIN (-9223372036854775807L - 1)
#define LONG_MAX 9223372036854775807L
#define ULONG_MAX 18446744073709551615UL
#define LLONG_MIN (-9223372036854775807LL - 1)
#define LLONG_MAX 9223372036854775807LL
#define ULLONG_MAX 18446744073709551615ULL
"""
_INTEGERS = {
    "int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short",
    "uint16_t": "unsigned short", "int32_t": "int", "uint32_t": "unsigned int", "int64_t": "long",
    "uint64_t": "unsigned long", "intptr_t": "long", "uintptr_t": "unsigned long",
}  # fmt: skip
_FUNCTIONS = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign",
    "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "fabs", "fdim", "floor", "fma", "fmax",
    "fmin", "fmod", "hypot", "isfinite", "isinf", "isnan", "ldexp", "lgamma", "log", "log10",
    "log1p", "log2", "nearbyint", "pow", "remainder", "rint", "round", "signbit", "sin", "sinh",
    "sqrt", "tan", "tanh", "tgamma", "trunc",
)  # fmt: skip
_MATH = """
#ifndef M_PI
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LN2 0.69314718055994530942
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000ULL)
#define NAN __int_as_float(0x7fffffff)
#endif
"""
_TYPES = "\n".join(f"typedef {kind} {name};" for name, kind in _INTEGERS.items())
_C = {
    "float": _FLOAT, "limits": _LIMITS, "stdint": _TYPES, "math": _MATH,
    "stddef": "", "stdio": "", "stdlib": "", "string": "", "assert": "",
}  # fmt: skip
_OF_CUDA = ("cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "device_launch_parameters.h")
"""What NVRTC knows itself of those; where the real ones are, they are found before these."""


def _in_std(names: Iterable[str]) -> str:
    using = " ".join(f"using ::{name};" for name in names)
    return f"\nnamespace std {{ {using} }}\n"


def write(folder: Path) -> None:
    """Write the headers into a folder, in C's names and in those of C++."""
    for name in _OF_CUDA:
        (folder / name).write_text("#pragma once\n")
    for name, text in _C.items():
        known = {"stdint": _in_std(_INTEGERS), "math": _in_std(_FUNCTIONS)}.get(name, "")
        (folder / f"{name}.h").write_text(f"#pragma once\n{text}")
        (folder / f"c{name}").write_text(f"#pragma once\n#include <{name}.h>\n{known}")
