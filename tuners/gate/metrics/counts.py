"""How often a step has GPUs and torch do something, and a run Dynamo and Inductor."""

from __future__ import annotations

from gpuadvisor.domain.gate import MetricRole
from gpuadvisor.tuners.gate.metric import Counted, Evidence, OfCompiler, Traced


class Kernels(Traced):
    """Kernels that a step launches on GPUs; new ones are named, with what launched them."""

    name = kind = "kernels"
    title = "Kernels a step"
    needs_gpu = True
    why_not = "torch's profiler saw no kernel of a GPU"


class Copies(Traced):
    """Copies and memsets that a step has GPUs do, by direction."""

    name = kind = "copies"
    title = "Copies a step"
    needs_gpu = True
    why_not = "torch's profiler saw no copy of a GPU"


class Operators(Traced):
    """Torch's operators that a step calls, but for those that another one calls.

    Exact without a GPU and beside other jobs, and no cost by itself, so on request only.
    """

    name = kind = "operators"
    title = "Operators a step"
    role = MetricRole.REPORTED
    on_request = True
    why_not = "torch's profiler saw no operator"


class AllocatedBytes(Traced):
    """Bytes that the tensors of a step allocate, whether they are freed in it or not.

    Exact on a CPU, and no cost by itself, so on request only; one percent more is none.
    """

    name = kind = "allocated_bytes"
    title = "Memory that a step allocates"
    unit = "bytes"
    role = MetricRole.REPORTED
    on_request = True
    allowed = 0.01
    why_not = "torch's profiler saw no allocation"


class GeneratedKernels(Counted):
    """Kernels that Inductor generated, until the end of the measurement: more are less fused.

    Compared where Inductor generated any in both versions, for a GPU or a CPU.
    """

    name = kind = "generated_kernels"
    title = "Generated kernels"

    def lacks(self, evidence: Evidence) -> str:
        base, head = self.runs(evidence)
        has_some = all(self.kind in run.counts for run in (*base, *head))
        return "" if has_some else "a version has none of Inductor"


class GraphBreaks(OfCompiler):
    """Graph breaks of Dynamo, until the end of the measurement; what broke is named."""

    name = kind = "graph_breaks"
    title = "Graph breaks"


class Recompilations(OfCompiler):
    """Compilations of frames that Dynamo had compiled before, with the frames' names."""

    name = kind = "recompilations"
    title = "Recompilations"


METRICS = (
    Kernels(),
    Copies(),
    Operators(),
    AllocatedBytes(),
    GeneratedKernels(),
    GraphBreaks(),
    Recompilations(),
)
