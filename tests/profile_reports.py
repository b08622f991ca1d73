"""Profiles made by hand for tests of reports: one with everything, and odd ones."""

from gpuadvisor.domain.profile import DeviceLimits, Direction, Memory, Range
from gpuadvisor.reports.profile.report import ProfileReport
from gpuadvisor.rules.facts.ceilings import theoretical
from gpuadvisor.rules.facts.summary import Facts
from tests.diagnoses import DIAGNOSIS, RULES
from tests.profiles import Made

H100 = DeviceLimits(
    0, "NVIDIA H100 80GB HBM3", compute_capability=(9, 0), sm_count=132,
    memory_bytes=85_017_493_504,
)  # fmt: skip
V100 = DeviceLimits(0, "Tesla V100-SXM2-32GB", compute_capability=(7, 0), sm_count=80)
GEMM = "void cutlass::Kernel<at::native::Half, 3>(float*, int)"
LAUNCH = {
    "grid_x": 64, "grid_y": 2, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1,
    "registers": 168,
}  # fmt: skip


def steps(made, number=4, data_us=300.0, gemm_us=200.0, name=GEMM):
    """Add steps of 1 ms: waiting for data, a copy, a matrix product and a collective."""
    for step in range(number):
        start = 1000.0 * step
        made.range(f"ProfilerStep#{step}", (start, 1000), Range.STEP)
        if data_us:
            made.range("enumerate(DataLoader)#_Single.__next__", (start, data_us), Range.LOADER)
        made.copied((start + data_us, 10), (start + data_us + 12, 40), bytes=4_000_000,
                    source=Memory.PAGEABLE)  # fmt: skip
        shapes, types = "[[512, 512], [512, 512]]", '["float", "float"]'
        made.operator("aten::mm", (start + 380, 30), shapes=shapes, types=types, external_id=step)
        made.launched(name, (start + 385, 10), (start + 400, gemm_us), shared_bytes=100_000,
                      **LAUNCH)  # fmt: skip
        key = made.correlation()
        made.launched("ncclDevKernel_AllReduce_Sum_f32", (start + 700, 5), (start + 710, 100),
                      correlation=key, stream=20)  # fmt: skip
        made.row("collectives", correlation=key, begin_ns=round((start + 710) * 1000),
                 name="allreduce", type="Float", group="0", group_size=8, in_elements=1000,
                 out_elements=1000)  # fmt: skip
        for at, size, total in ((100, 1 << 20, 2 << 20), (900, -(1 << 20), 1 << 20)):
            made.row("memory", time_ns=round((start + at) * 1000), device=0, bytes=size,
                     allocated_bytes=total, reserved_bytes=4 << 20, address=7)  # fmt: skip
    return made


def executing(made, number=4):
    """Add samples of the thread that launches, after the matrix product of each step."""
    for at in (1000 * step + us for step in range(number) for us in range(610, 690, 10)):
        made.row("samples", time_ns=1000 * at, process=1, thread=1, function="read_csv",
                 module="libparse.so")  # fmt: skip
    return made


def sampled():
    """A profile with samples of the CPU."""
    return executing(steps(Made())).profile(devices=(H100,), duration_ns=4_000_000)


def whole(**changes):
    """A profile that has something of everything but samples of the CPU."""
    header = {"devices": (H100,), "duration_ns": 4_000_000, "tool": "torch 2.8"}
    made = steps(Made(), **{k: changes.pop(k) for k in list(changes) if k not in HEADER})
    return made.profile(**{**header, **changes})


HEADER = ("devices", "duration_ns", "tool", "source", "warnings", "rank", "world_size",
          "not_measured", "facts", "processes")  # fmt: skip


def empty(**header):
    """A profile in which nothing was recorded."""
    return Made().profile(**header)


def memsets_only():
    made = Made()
    made.copy((0, 5), direction=Direction.MEMSET, source=Memory.NOT_KNOWN)
    return made.profile()


def one_point():
    """A kernel that takes no time."""
    made = Made()
    made.kernel("instant", (5, 0))
    return made.profile()


def counted():
    """Of Nsight Compute: kernels without a timeline."""
    made = Made()
    made.row("kernels", name=GEMM, begin_ns=0, duration_ns=1_000_000, device=0, stream=7, **LAUNCH,
             shared_bytes=0)  # fmt: skip
    values = {"gpu__time_duration.sum": 1e-3, "dram__bytes.sum": 1e9,
              "smsp__cycles_elapsed.avg.per_second": 1e9,
              "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed": 4000.0,
              "sm__throughput.avg.pct_of_peak_sustained_elapsed": 20.0,
              "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 80.0}  # fmt: skip
    for metric, value in values.items():
        made.row("metrics", kernel=0, metric=metric, value=value)
    for why, samples in (("long_scoreboard", 60), ("selected", 40)):
        made.row("stalls", kernel=0, line="gemm.cu:9", reason=why, samples=samples)
    reason = "Nsight Compute runs kernels one by one, several times each"
    return made.profile(source="ncu", devices=(V100,), not_measured={"kernels.begin_ns": reason})


def many_devices(number=20):
    """More devices and streams than a page draws."""
    made = Made()
    made.range("all", (0, 100))
    for device in range(number):
        for stream in range(3):
            made.launched(f"k{stream}", (10, 2), (20 + stream, 30), device=device, stream=stream)
    return made.profile(devices=tuple(DeviceLimits(n, "H100") for n in range(number)))


HOSTILE = '</title><script>alert("x")</script>| `code` "},{"cat":"kernel" \x1b[31m \udcff'


def hostile():
    """Whatever has a name has one that wants to be markup."""
    made = steps(Made(), name=HOSTILE)
    made.operator(HOSTILE, (0, 4000))
    made.range(HOSTILE, (0, 4000))
    return made.profile(
        devices=(DeviceLimits(0, HOSTILE, compute_capability=(9, 0)),),
        tool=HOSTILE,
        warnings=(HOSTILE,),
        facts={HOSTILE: HOSTILE},
        processes={1: HOSTILE},
        not_measured={"counters": HOSTILE},
    )


def report(profile, name="train"):
    """What is said of a profile."""
    devices = profile.header.devices
    ceilings = theoretical(devices[0]) if devices else None
    facts = Facts(profile, ceilings.values() if ceilings else {})
    return ProfileReport(name, facts, ceilings, "/data/train.json", "0.0", (), DIAGNOSIS, RULES)


PROFILES = {
    "whole": whole,
    "empty": empty,
    "memsets only": memsets_only,
    "one point": one_point,
    "counted": counted,
    "many devices": many_devices,
    "sampled": sampled,
    "hostile": hostile,
    "one step": lambda: whole(number=1),
    "five hundred steps": lambda: whole(number=500),
    "unknown architecture": lambda: whole(devices=(DeviceLimits(0, "X", (99, 0)),)),
    "no device limits": lambda: whole(devices=()),
}
