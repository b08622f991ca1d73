"""How a kernel's best point does on another GPU, on spaces that were brute-forced on several.

    python benchmarks/carried_points.py KERNEL__GPU.json.gz...

The files are caches of Kernel Tuner such as those of AutoTuningAssociation/benchmark_hub, named by
the kernel and the GPU. The point that was fastest on one GPU is looked up on another: its time over
the fastest there, beside the median point's. This is what `gpuadvisor.best` takes on a GPU of the
same compute capability, and what it would take where that differs.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from statistics import median

from gpuadvisor.domain.kernel_records import Record
from gpuadvisor.rules.facts.gpu_specs import capability
from gpuadvisor.storage.kernel_caches import read

COMPLETE = 0.9
"""Share of the points that any file of the kernel has, below which a file is left out: the best of
a part of a space says little."""
Times = Mapping[tuple[tuple[str, object], ...], float]


def times(record: Record) -> Times:
    """Return the time of each point; infinite where it failed."""
    return {tuple(sorted(e.point.items())): e.time_ms or math.inf for e in record.evaluations}


def main() -> None:
    """Print a row for each kernel and pair of GPUs, and what pairs have in common."""
    kernels: dict[str, dict[str, tuple[Record, Times]]] = defaultdict(dict)
    for path in map(Path, sys.argv[1:]):
        kernel, _, gpu = path.name.partition(".")[0].partition("__")
        record = read(path)
        kernels[kernel][gpu] = record, times(record)
    print("| kernel | tuned on | used on | capability | its time over the best | median point |")
    print("| --- | --- | --- | --- | --- | --- |")
    carried: dict[bool, list[float]] = defaultdict(list)
    for kernel, every in kernels.items():
        union = {point for _, found in every.values() for point in found}
        gpus = {gpu: it for gpu, it in every.items() if len(it[1]) >= COMPLETE * len(union)}
        for gpu in every.keys() - gpus.keys():
            print(f"{kernel} {gpu}: left out, {len(every[gpu][1]):,} of {len(union):,} points",
                  file=sys.stderr)  # fmt: skip
        for one, other in permutations(gpus, 2):
            capabilities = [capability(gpus[gpu][0].device or gpu) for gpu in (one, other)]
            source, target = gpus[one][1], gpus[other][1]
            point = min(source, key=lambda each: source[each])
            best = min(target.values())
            middle = median(each for each in target.values() if math.isfinite(each)) / best
            # What the other space leaves out failed there: Kernel Tuner's older files do so.
            ratio = target.get(point, math.inf) / best
            is_same = capabilities[0] == capabilities[1]
            carried[is_same].append(ratio)
            names = ["-" if each is None else ".".join(map(str, each)) for each in capabilities]
            print(f"| {kernel} | {one} | {other} | {' to '.join(names)} | {ratio:.3f} "
                  f"| {middle:.2f} |")  # fmt: skip
    for is_same, ratios in sorted(carried.items(), reverse=True):
        failed = sum(map(math.isinf, ratios))
        print(f"{'same' if is_same else 'other'} compute capability: {len(ratios)} pairs, median "
              f"{median(ratios):.3f}, worst {max(ratios):.3f}, {failed} could not run")  # fmt: skip


if __name__ == "__main__":
    main()
