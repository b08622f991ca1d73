"""What profilers print is no recording, and is told what to give instead."""

import pytest

from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.reading import known_reader

STATS = """
 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

 Time (%)  Total Time (ns)  Instances  Avg (ns)  Name
"""
STATS_CSV = "Time (%),Total Time (ns),Instances,Avg (ns),Name\n99.0,1200,3,400.0,add\n"
NVPROF = """==195== NVPROF is profiling process 195, command: python main.py
==195== Profiling result:
"Start","Duration","Name"
"""
COUNTED = """  add(float *) (4096, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.0
    Section: GPU Speed Of Light Throughput
"""


@pytest.mark.parametrize(
    ("text", "what", "instead"),
    [
        (STATS, "tables of `nsys stats`", ".nsys-rep"),
        (STATS_CSV, "tables of `nsys stats`", "nsys export --type sqlite"),
        (NVPROF, "what nvprof printed", "nsys profile"),
        (COUNTED, "a page that Nsight Compute printed", ".ncu-rep"),
        ("nothing of a profiler\n", "no profile that gpuadvisor knows", ".json"),
    ],
)
def test_printed_text_is_refused_with_what_to_give(tmp_path, text, what, instead):
    path = tmp_path / "printed.txt"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        known_reader(path)
    assert what in str(refused.value) and instead in str(refused.value)
