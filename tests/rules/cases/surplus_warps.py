"""More warps than anything to read or write, and such that all do."""

from tests.rules.counted import QUIET, REQUESTS, kernel

SURFACE = "l1tex__t_requests_pipe_tex_mem_surface_op_{}.sum"
NONE_ELSE = {
    **{REQUESTS.format(f"global_op_{op}"): 0.0 for op in ("ld", "atom", "red")},
    **{SURFACE.format(op): 0.0 for op in ("ld", "st", "atom", "red")},
    "l1tex__t_requests_pipe_tex_mem_texture.sum": 0.0,
}
WARPS = 80_000


def storing(requests, *changes, **shape):
    """A kernel of 80,000 warps with so many stores and nothing else."""
    usual = {"grid": WARPS // 8, "block": 256, **shape}
    return kernel(QUIET, NONE_ELSE, {REQUESTS.format("global_op_st"): requests}, *changes, **usual)


STATIC = "launch__shared_mem_per_block_static"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"

FIRES = {
    "few of them use shared memory": lambda: storing(
        WARPS / 20, {STATIC: 4096.0, SHARED: WARPS / 8}
    ),
    "one of twenty stores": lambda: storing(WARPS / 20),
    "some store and others load": lambda: storing(
        WARPS / 8, {REQUESTS.format("global_op_ld"): WARPS / 8}
    ),
}
SILENT = {
    "each stores once": lambda: storing(WARPS),
    "a dimension rounded up": lambda: storing(0.8 * WARPS),
    "they add to one place": lambda: storing(WARPS / 20, {REQUESTS.format("global_op_red"): WARPS}),
    "they write to a surface": lambda: storing(WARPS / 20, {SURFACE.format("st"): WARPS}),
    "textures were not counted": lambda: storing(
        WARPS / 20, {"l1tex__t_requests_pipe_tex_mem_texture.sum": None}
    ),
    "they meet in shared memory": lambda: storing(WARPS / 20, {STATIC: 4096.0, SHARED: WARPS}),
    "accesses to shared memory were not counted": lambda: storing(
        WARPS / 20, {STATIC: 4096.0, SHARED: None}
    ),
    "shared memory is not told": lambda: storing(WARPS / 20, {STATIC: None, SHARED: None}),
    "nothing is kept at all": lambda: storing(0.0),
    "a launch that is too small": lambda: storing(1.0, grid=4, ms=0.002),
}
