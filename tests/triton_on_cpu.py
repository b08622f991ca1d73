"""What can be seen of a Triton kernel of a kernel file without a GPU.

    TRITON_INTERPRET=1 python -m tests.triton_on_cpu FILE PROBLEM POINTS
    python -m tests.triton_on_cpu FILE PROBLEM POINTS

PROBLEM and POINTS are JSON. The first runs the kernel in Triton's interpreter and answers with a
list of what is wrong at each point, null for nothing; the second compiles it for an H100 and
answers with what a block of each point takes. A program of its own, as Triton decides when it is
imported whether it interprets.
"""

import json
import os
import runpy
import sys

from gpuadvisor.collectors.kernels.child.arguments import Arguments, difference
from gpuadvisor.collectors.kernels.child.backends import Target, build, cubin
from gpuadvisor.domain.kernels import Array, declared

TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def main():
    file, problem, points = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    runpy.run_path(file, run_name="__gpuadvisor__")
    (kernel,) = declared()
    look = wrong if os.environ.get("TRITON_INTERPRET") == "1" else taken
    print(json.dumps([look(kernel, {**problem, **point}) for point in points]))


def wrong(kernel, names):
    arguments = Arguments(kernel, names, 1, "cpu")
    expected = arguments.expected()
    arguments.poison()
    build(kernel, names, Target("90")).launch(arguments.values)
    said = difference(arguments.written(), expected, kernel.tolerance)
    return arguments.overrun() or said


def taken(kernel, names):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function, types, aligned = kernel.source, {}, {}
    for place, (name, each) in enumerate(zip(function.arg_names, kernel.arguments, strict=False)):
        if isinstance(each, Array):
            types[name] = f"*{TYPES[each.dtype]}"
            aligned[(place,)] = [["tt.divisibility", 16]]
        else:
            types[name] = "i32" if isinstance(kernel.value(name, each, names), int) else "fp32"
    constants = {name: names[name] for name in function.arg_names if name not in types}
    types |= dict.fromkeys(constants, "constexpr")
    options = {name: names[name] for name in ("num_warps", "num_stages")}
    source = ASTSource(function, types, constants, aligned)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    found = cubin.resources(made.asm["cubin"], made.metadata.name)
    shared = made.metadata.shared
    return {**found, "threads": 32 * made.metadata.num_warps, "shared_bytes": shared}


if __name__ == "__main__":
    main()
