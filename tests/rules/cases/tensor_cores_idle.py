"""Products with and without tensor cores."""

from tests.rules.building import T4
from tests.rules.counted import ELAPSED, QUIET, kernel

FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed"
HFMA = "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum.per_cycle_elapsed"


def product(name="sgemm_tiled", tensor=0.0, single=0.7, half=0.0, **shape):
    return kernel(
        QUIET,
        {
            f"sm__throughput{ELAPSED}": 80.0,
            f"sm__pipe_tensor_cycles_active{ELAPSED}": tensor,
            FFMA: single * 132 * 128,
            HFMA: half * 132,
        },
        name=name,
        **shape,
    )


FIRES = {
    "32 bits": product,
    "16 bits": lambda: product("matmul_half", single=0.0, half=40.0),
    "16 bits, on a GPU without TF32": lambda: product("matmul_half", half=40.0, device=T4, ms=10.5),
}
SILENT = {
    "tensor cores work": lambda: product(tensor=60.0),
    "no product": lambda: product("nbody"),
    "a conversion": lambda: product("convert_half", half=40.0, single=0.0),
    "little arithmetic": lambda: product(single=0.2),
    "a GPU without TF32": lambda: product(device=T4, ms=10.5),
}
