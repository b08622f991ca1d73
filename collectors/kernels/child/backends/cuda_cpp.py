"""CUDA C++ through NVRTC, with NVIDIA's `cuda-core`."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import math
import os
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.kernels.child.backends import (
    CannotBuild,
    Launchable,
    Target,
    TorchStream,
    cubin,
    host_headers,
    threads,
)
from gpuadvisor.domain.kernel_rules import Names
from gpuadvisor.domain.kernels import Kernel
from gpuadvisor.errors import UsageError

STATIC_SHARED_BYTES = 48 * 1024
"""Dynamic shared memory above which a kernel is told beforehand (CUDA C++ Programming Guide)."""
_SHOWN_ERRORS = 3
NO_HOST_HEADERS = (
    "; NVRTC has CUDA's headers and of the host's only those of C that a kernel can use, such as "
    "float.h: put what else is the host's between `#ifndef __CUDACC_RTC__` and `#endif`"
)
_LETTERS = {"I": "include_path", "D": "define_macro", "U": "undefine_macro"}
_NAMES = {
    "maxrregcount": "max_register_count", "include-path": "include_path",
    "gpu-architecture": "arch", "define-macro": "define_macro", "undefine-macro": "undefine_macro",
    "Xptxas": "ptxas_options",
    "G": "debug", "device-debug": "debug", "generate-line-info": "lineinfo", "fmad": "fma",
}  # fmt: skip
"""Options of NVRTC and nvcc to cuda-core's names, where these differ by more than a dash."""
_WITH_VALUE = frozenset(
    ("std", "arch", "gpu-architecture", "include-path", "define-macro", "undefine-macro", "Xptxas",
     "ptxas-options", "maxrregcount", "Xcompiler", "compiler-options", "ccbin", "compiler-bindir")
)  # fmt: skip
"""Options whose value may be the next word."""
_HOST_CODE = "device_as_default_execution_space"
"""What lets a text have functions of the host beside its kernels, as with nvcc: NVRTC compiles them
for the GPU, and refuses them otherwise."""
_USUAL_HEADERS = Path("/usr/local/cuda/include")
_OF_THE_HOST = frozenset(
    ("O", "O0", "O1", "O2", "O3", "Wno_deprecated_gpu_targets", "allow_unsupported_compiler",
     "Xcompiler", "compiler_options", "ccbin", "compiler_bindir")
)  # fmt: skip
"""Options of nvcc that change nothing on the GPU: those of the host's compiler, and checks."""


def takes(source: Any) -> bool:
    """Say whether this is a text, or the path of one."""
    return isinstance(source, str)


def check(kernel: Kernel, source: str, names: Names) -> None:
    """UsageError for a kernel without a block, and for a text that does not fit its parameters."""
    threads(kernel, names)
    _flags(kernel)
    check_text(kernel, kernel.cuda_text)


def build(kernel: Kernel, source: str, names: Names, target: Target) -> Launchable:
    """Load for the current GPU what is compiled with each name as a macro."""
    core = _core()
    import torch

    block, grid = threads(kernel, names), kernel.sides("grid", kernel.grid, names)
    binary, symbol = _compiled(core, kernel, names, target)
    module = core.ObjectCode.from_cubin(binary)
    compiled = module.get_kernel(symbol)
    shared = int(kernel.value("shared_bytes", kernel.shared_bytes, names))
    _allow(compiled, shared)
    configuration = core.LaunchConfig(grid=grid, block=block, shmem_size=shared)
    device = core.Device(torch.cuda.current_device())
    device.set_current()
    for name, data in _constants(kernel, binary).items():
        _copy(module, name, data)
    stream = device.create_stream(TorchStream())
    sizes = _sizes(compiled)

    def launch(arguments: Sequence[Any]) -> object:
        known = sizes(len(arguments))
        values = [_argument(each, size) for each, size in zip(arguments, known, strict=True)]
        return core.launch(stream, configuration, compiled, *values)

    return Launchable(launch, lambda: _resources(compiled))


def prepare(kernel: Kernel, source: str, names: Names, target: Target) -> Mapping[str, int]:
    """Compile without a GPU, and return what a block takes."""
    block = threads(kernel, names)
    binary, symbol = _compiled(_core(), kernel, names, target)
    _constants(kernel, binary)
    taken = cubin.resources(binary, symbol)
    dynamic = int(kernel.value("shared_bytes", kernel.shared_bytes, names))
    if "shared_bytes" in taken:
        taken["shared_bytes"] += dynamic
    return {"threads": math.prod(block), **taken}


def _compiled(core: Any, kernel: Kernel, names: Names, target: Target) -> tuple[bytes, str]:
    """Return a cubin and the mangled name of the kernel in it, from the target's folder if another
    process left it there; CannotBuild, in the compiler's words, where it does not compile.
    """
    said = _other_arguments(kernel, kernel.declared_in(kernel.cuda_text)[1])
    if said:  # of a text that was made for this point
        raise CannotBuild(said)
    text = kernel.with_macros(kernel.cuda_text, names)
    key = f"{target.capability}\0{chr(0).join(kernel.options)}\0{text}"
    kept = Path(target.folder, f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.cubin")
    if target.folder and kept.is_file():
        head, _, binary = kept.read_bytes().partition(b"\n")
        return binary, head.decode()
    with tempfile.TemporaryDirectory(prefix="headers-") as folder:
        options = _options(core, kernel, target, Path(folder))
        try:
            compiled = core.Program(text, "c++", options).compile(
                "cubin", name_expressions=(kernel.name,)
            )
        except Exception as error:
            said = compiler_errors(str(error))
            hint = NO_HOST_HEADERS if "open source file" in said else ""
            raise CannotBuild(f"it does not compile: {said}{hint}") from None
    mangled = compiled.symbol_mapping.get(kernel.name, kernel.name)
    symbol: str = mangled.decode() if isinstance(mangled, bytes) else mangled
    binary = bytes(compiled.code)
    if target.folder:
        draft = kept.with_suffix(f".{os.getpid()}")
        draft.write_bytes(symbol.encode() + b"\n" + binary)
        draft.replace(kept)  # so that nobody reads half of it
    return binary, symbol


def _core() -> Any:
    try:
        from cuda import core
    except ImportError as error:
        raise UsageError(
            "CUDA C++ is compiled with NVIDIA's cuda-core, which this Python has not: "
            f"install cuda-core[cu13], or [cu12] for an older driver ({error})"
        ) from None
    if not hasattr(core, "Program"):  # before 0.5
        from cuda.core import experimental as core
    return core


def _options(core: Any, kernel: Kernel, target: Target, folder: Path) -> Any:
    """Return what cuda-core compiles with; UsageError for an option that it does not take.

    The folder is for headers that a text with an `#include` may want, and comes last.
    """
    flags = {"std": "c++17", **_flags(kernel)}
    known = getattr(core.ProgramOptions, "__dataclass_fields__", flags)
    for name in flags:
        if name not in known:
            raise UsageError(
                f"kernel {kernel.name}: its option {name} is none of NVRTC's that cuda-core takes: "
                "leave it out"
            )
    if _HOST_CODE in known:
        flags.setdefault(_HOST_CODE, True)
    if re.search(r"^\s*#\s*include\b", kernel.cuda_text, re.MULTILINE):
        host_headers.write(folder)
        found = [*flags.get("include_path", ()), *_include_folders(kernel), str(folder)]
        flags["include_path"] = found
    return core.ProgramOptions(arch=f"sm_{target.capability}", **flags)


def _flags(kernel: Kernel) -> dict[str, Any]:
    """Return options as cuda-core names them: `-use_fast_math` is `use_fast_math=True`."""
    found: dict[str, Any] = {}
    words = iter(kernel.options)
    for word in words:
        name, is_joined, value = word.lstrip("-").partition("=")
        if not word.startswith("--") and word[1:2] in _LETTERS:  # -I/path, or -I /path
            name, value = _LETTERS[word[1]], word[2:] or next(words, "")
        elif not is_joined and name in _WITH_VALUE:
            value = next(words, "")
        name = _NAMES.get(name, name.replace("-", "_"))
        if name in _OF_THE_HOST:
            continue
        if name == "arch":
            raise UsageError(
                f"kernel {kernel.name}: it is compiled for the GPU that it is measured on: leave "
                f"{word} out of its options"
            )
        if name in _LETTERS.values():
            macro, is_given, number = value.partition("=")
            whole = (macro, number) if name == "define_macro" and is_given else value
            found[name] = [*found.get(name, ()), whole]
        else:
            told = {"true": True, "false": False}.get(value, value or True)
            found[name] = int(value) if value.isdigit() else told
    return found


def _cuda_headers() -> list[str]:
    """Return the folders with CUDA's own headers, which NVRTC does not look for by itself: those of
    `CUDA_HOME` or `CUDA_PATH`, of NVIDIA's wheels, or of the usual place; none where there is none.
    """
    named = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    spec = importlib.util.find_spec("nvidia")
    wheels = sorted(
        each
        for place in (spec.submodule_search_locations or () if spec else ())
        for each in Path(place).glob("*/include")
    )
    places = [*(Path(each, "include") for each in named if each), *wheels, _USUAL_HEADERS]
    # CUDA 13 has those of CUB, Thrust and libcu++ in a folder of their own. A wheel may lack what
    # another place has.
    folders = [each for place in places for each in (place, place / "cccl")]
    return [str(each) for each in folders if each.is_dir()]


def _include_folders(kernel: Kernel) -> list[str]:
    """Return where the headers are that a text includes: beside it, and CUDA's own."""
    source = Path(kernel.file).parent
    if "\n" not in str(kernel.source) and "__global__" not in str(kernel.source):
        source = (source / str(kernel.source)).parent
    return [str(source.absolute()), *_cuda_headers()]


def _constants(kernel: Kernel, binary: bytes) -> dict[str, bytes]:
    """Return what its constants hold, of those that the binary has: a text may have one for some
    points only. CannotBuild where one has less room.
    """
    import numpy

    found = {}
    for name, value in kernel.constants.items():
        data = numpy.ascontiguousarray(value).tobytes()
        room = cubin.variable_bytes(binary, name)
        if room is not None:
            if len(data) > room:
                raise CannotBuild(
                    f"its constant {name} has {room:,} bytes, and constants= gives {len(data):,}"
                )
            found[name] = data
    return found


def _copy(module: Any, name: str, data: bytes) -> None:
    """Copy bytes to a variable of a module, in the current context."""
    from cuda.bindings import driver

    status, place, _ = driver.cuLibraryGetGlobal(module.handle, name.encode())
    if not int(status):
        (status,) = driver.cuMemcpyHtoD(place, data, len(data))
    if int(status):
        raise RuntimeError(f"its constant {name} cannot be written: {status.name}")


def _allow(compiled: Any, shared: int) -> None:
    if shared <= STATIC_SHARED_BYTES:
        return
    from cuda.bindings import driver

    which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    device = driver.cuCtxGetDevice()[1]
    (status,) = driver.cuKernelSetAttribute(which, shared, compiled._handle, device)
    if int(status):
        raise CannotBuild(
            f"{shared:,} bytes of dynamic shared memory are more than a block can have"
        )


def _sizes(compiled: Any) -> Any:
    """Return a function from a number of arguments to their sizes in bytes; 0 for not known."""
    try:
        known = [each.size for each in compiled.arguments_info]
    except Exception:
        known = []
    return lambda count: known if len(known) == count else [0] * count


def _argument(value: Any, size: int) -> Any:
    if hasattr(value, "data_ptr"):
        return value.data_ptr()
    if isinstance(value, bool):
        return ctypes.c_bool(value)
    if isinstance(value, int):
        long = size == 8 or (not size and not -(1 << 31) <= value < 1 << 31)
        return ctypes.c_int64(value) if long else ctypes.c_int32(value)
    if isinstance(value, float):
        return ctypes.c_double(value) if size == 8 else ctypes.c_float(value)
    return value


def _resources(compiled: Any) -> dict[str, int]:
    attributes = compiled.attributes
    found: dict[str, int] = {}
    for name, attribute in (
        ("registers", "num_regs"),
        ("shared_bytes", "shared_size_bytes"),
        ("local_bytes", "local_size_bytes"),
    ):
        value = getattr(attributes, attribute)
        found[name] = int(value() if callable(value) else value)
    return found


def check_text(kernel: Kernel, text: str) -> None:
    """UsageError for a text that hides a parameter, does not use it, or takes another number of
    arguments than are given.
    """
    template, arguments = kernel.declared_in(text)
    hidden = _defined_in(text, kernel.parameters)
    for name in kernel.parameters:
        if re.search(rf"\b{name}\b", template):
            raise UsageError(
                f"kernel {kernel.name}: {name} is a parameter of its template, and parameters are "
                f"macros: delete `template <{' '.join(template.split())}>`"
            )
        guarded = re.search(rf"\bdefined\b\W*{name}\b", text)
        if name in hidden and not guarded:
            raise UsageError(
                f"kernel {kernel.name}: its text has a `#define {name}` that hides the "
                f"parameter: delete that line, or put it between `#ifndef {name}` and `#endif`"
            )
    if '#include "' not in text:  # what that holds may use them
        words = set(re.findall(r"\w+", text))
        kernel.check_used(words, "its text")
        for name in kernel.constants:
            if name not in words:
                raise UsageError(
                    f"kernel {kernel.name}: constants= has {name}, which its text has not"
                )
    said = _other_arguments(kernel, arguments)
    if said:
        raise UsageError(f"kernel {kernel.name}: {said}")


def _defined_in(text: str, known: Collection[str]) -> set[str]:
    """Return the macros that a text defines where these are known: not those between `#ifndef` of
    a known one and its `#else` or `#endif`.
    """
    defined, found = set(known), set()
    dead: list[bool | None] = []  # of each open condition; None where that is not known
    for line in text.splitlines():
        words = re.match(r"\s*#\s*(\w+)(?:\s+(\w+))?", line)
        if words is None:
            continue
        directive, name = words.groups()
        if directive in ("ifdef", "ifndef"):
            # What is not known here may be in a header: an #ifdef of it is not called dead.
            dead.append(directive == "ifndef" if name in defined else None)
        elif directive == "if":
            dead.append(None)
        elif directive in ("else", "elif") and dead:
            dead[-1] = None if dead[-1] is None else not dead[-1]
        elif directive == "endif" and dead:
            dead.pop()
        elif directive == "define" and name and True not in dead:
            found.add(name)
            defined.add(name)
    return found


def _other_arguments(kernel: Kernel, arguments: str) -> str:
    """Say that a kernel is declared with another number of arguments than are given; empty where it
    is not, or may not be.
    """
    if callable(kernel.arguments):
        return ""
    plain = re.sub(r"/\*.*?\*/|//[^\n]*|<[^<>]*>", "", arguments, flags=re.DOTALL)
    declared = [each for each in plain.split(",") if each.strip()]
    # A macro may stand for several, and a pointer to a function has commas of its own.
    is_clear = "(" not in plain and all(re.search(r"\w\W+\w", each) for each in declared)
    if not declared or not is_clear or len(declared) == len(kernel.arguments):
        return ""
    return (
        f"it takes {len(declared)} arguments ({' '.join(arguments.split())}), and arguments= gives "
        f"{len(kernel.arguments)}"
    )


def compiler_errors(log: str) -> str:
    """Return a compiler's errors, which name file and line, each with the line of the source that
    it shows below; the whole log on one line where it has none.
    """
    lines = log.splitlines()
    said = []
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if re.search(r"\berror\b.*:", line, re.IGNORECASE) and "(" in line:
            shown = below.strip()
            said.append(f"{line.strip()} in `{shown}`" if shown else line.strip())
    return "; ".join(said[:_SHOWN_ERRORS]) or " ".join(log.split())
