"""Runs CUDA C++ of a kernel file on a CPU, to see whether it computes what it says.

`cuda_on_cpu.h` has what a kernel may use; the host's compiler makes a library of both.
"""

import ctypes
import inspect
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

HEADER = Path(__file__).with_name("cuda_on_cpu.h")
FLAGS = ("-std=c++17", "-O1", "-w", "-fno-strict-aliasing", "-fPIC", "-shared")
SIGNATURE = re.compile(r'extern "C" __global__ void[^;{}]*?\b(\w+)\s*\(([^)]*)\)\s*\{')


@cache
def parsed(compiler):
    """Parse the header once a process, which is two thirds of what compiling a kernel takes; the
    folder with what came of it, as g++ takes it for the header, is gone when the process ends.
    """
    folder = tempfile.TemporaryDirectory()
    made = Path(folder.name) / f"{HEADER.name}.gch"
    subprocess.run([compiler, *FLAGS, "-x", "c++-header", HEADER, "-o", made], check=True)
    return folder


def compiled(kernel, names, folder):
    """Compile the kernel for names of a problem and a point; what is returned takes its arguments,
    torch tensors and numbers, and launches it.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("CUDA C++ on a CPU needs g++")
    is_made = inspect.isfunction(kernel.source)
    raw = kernel.value("source", kernel.source, names) if is_made else kernel.cuda_text
    text = kernel.with_macros(raw, names)
    (found,) = [each for each in SIGNATURE.finditer(text) if each[1] == kernel.name]
    arguments = [each.replace("__restrict__", "").strip() for each in found[2].split(",")]
    types = [re.sub(r"\w+$", "", each).strip() for each in arguments]
    passed = ", ".join(
        f"({kind})values[{n}]" if kind.endswith("*") else f"*({kind} *)values[{n}]"
        for n, kind in enumerate(types)
    )
    place = Path(tempfile.mkdtemp(dir=folder))  # a library of a path is loaded once
    source, library = place / "kernel.cpp", place / "kernel.so"
    source.write_text(
        f'#include "{HEADER.name}"\n{text}\n'
        f"static void call_it(void **values) {{ {kernel.name}({passed}); }}\n"
        'extern "C" void run(void **values, const unsigned *grid, const unsigned *size) '
        "{ on_cpu::launch(call_it, values, grid, size); }\n"
    )
    places = ["-I", parsed(compiler).name, "-I", HEADER.parent]
    subprocess.run([compiler, *FLAGS, *places, source, "-o", library], check=True)
    loaded = ctypes.CDLL(str(library))
    for name, value in kernel.constants.items():
        ctypes.memmove(
            (ctypes.c_char * value.nbytes).in_dll(loaded, name), value.tobytes(), value.nbytes
        )
    run = loaded.run
    sides = [kernel.sides(what, getattr(kernel, what), names) for what in ("grid", "block")]
    grid, block = [(ctypes.c_uint * 3)(*(*each, 1, 1)[:3]) for each in sides]

    def launch(values):
        numbers, pointers = [], (ctypes.c_void_p * len(values))()
        for n, (value, kind) in enumerate(zip(values, types, strict=True)):
            if hasattr(value, "data_ptr"):
                pointers[n] = value.data_ptr()
                continue
            made = {"float": ctypes.c_float, "long long": ctypes.c_longlong}
            numbers.append(made.get(kind, ctypes.c_int)(value))
            pointers[n] = ctypes.addressof(numbers[-1])
        run(pointers, grid, block)

    return launch
