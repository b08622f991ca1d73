"""Runs a Triton kernel of a kernel file in Triton's interpreter, and compares with its reference.

    TRITON_INTERPRET=1 python -m tests.triton_on_cpu FILE PROBLEM POINTS

A program of its own, as Triton decides when it is imported whether it interprets. PROBLEM and
POINTS are JSON; the answer is a list with what is wrong at each point, null for nothing.
"""

import json
import runpy
import sys

from gpuadvisor.collectors.kernels.child.arguments import Arguments, difference
from gpuadvisor.collectors.kernels.child.backends import Target, build
from gpuadvisor.domain.kernels import declared


def main():
    file, problem, points = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    runpy.run_path(file, run_name="__gpuadvisor__")
    (kernel,) = declared()
    wrong = []
    for point in points:
        arguments = Arguments(kernel, {**problem, **point}, 1, "cpu")
        expected = arguments.expected()
        arguments.poison()
        build(kernel, {**problem, **point}, Target("90")).launch(arguments.values)
        said = difference(arguments.written(), expected, kernel.tolerance)
        wrong.append(arguments.overrun() or said)
    print(json.dumps(wrong))


if __name__ == "__main__":
    main()
