"""A Python with a GPU, as far as `KernelProcess` can tell: it answers for no real kernels.

`python(folder, **changes)` writes an executable that answers the requests of
`gpuadvisor.collectors.kernels` on a space of 8 x 5 points, and a log of what it did and when. What
a point does follows from its values: see `BAD`.
"""

import json
import sys
from pathlib import Path

SPACE = {"block": [32, 64, 128, 256, 512, 768, 1024, 96], "tile": [1, 2, 4, 8, 16]}
DEFAULT = {"block": 256, "tile": 1}
BAD = {
    "crash": {"block": 96, "tile": 1},
    "hang": {"block": 96, "tile": 2},
    "wrong": {"block": 96, "tile": 4},
    "uncompiled": {"block": 96, "tile": 8},
    "later": {"block": 96, "tile": 16},  # fastest, and wrong as soon as it is looked at again
}
REGISTERS = {16: 128}
"""Registers by tile, else 32: with 128 no block of more than 512 threads can be launched."""
_CODE = """
import json, os, sys, time

SETTINGS = json.loads({settings!r})
DEFAULT, BAD = SETTINGS["default"], SETTINGS["bad"]
answers = os.fdopen(int(sys.argv[5]), "w")
gpu = None


def say(answer):
    answers.write(json.dumps(answer) + "\\n")
    answers.flush()


def log(what, point, began):
    with open(SETTINGS["log"], "a") as file:
        line = [what, gpu, point, began, time.monotonic(), os.getpid()]
        file.write(json.dumps(line) + "\\n")


def time_ms(point):
    if point == BAD["later"]:
        return 0.5
    away = abs(point["block"] - 128) / 128 + abs(point["tile"] - 4) / 4
    return 1 + away / 4


def answer(request):
    global gpu
    what, point = request["do"], request.get("point")
    began = time.monotonic()
    if what == "describe":
        names = SETTINGS["space"]
        points = [[x, y] for x in names["block"] for y in names["tile"]]
        problems = [dict(sizes=dict(n=n), points=points, unlaunchable=3) for n in SETTINGS["sizes"]]
        return dict(kernels=[dict(name=SETTINGS["name"], parameters=names, default=DEFAULT,
                                  has_reference=True, language="cuda_cpp", dtype="float32",
                                  size_restrictions=[], problems=problems)])
    if what == "open":
        gpu = request["gpu"]
        if request["problem"] in SETTINGS["failing"]:
            return dict(error="the default is wrong: element 0 is 1", kind="DefaultFailsError")
        return dict(device=SETTINGS["devices"][gpu], capability="90", uuid=None, torch="2.9",
                    resources=dict(registers=32), repeats=True, bytes=SETTINGS["bytes"],
                    flops=SETTINGS["flops"])
    if what == "launches":
        names = SETTINGS["space"]
        return dict(launches=[[4096 // y, x] for x in names["block"] for y in names["tile"]])
    if what == "compile":
        time.sleep(SETTINGS["compile_s"])
        log("compile", point, began)
        if SETTINGS["compiler_fails"]:
            return dict(state="crashed", reason="all CUDA-capable devices are busy")
        if point == BAD["uncompiled"]:
            return dict(state="unsupported", reason="it does not compile: error: no C")
        registers = SETTINGS["registers"].get(str(point["tile"]), 32)
        return dict(ahead=True, compile_ms=1e3 * SETTINGS["compile_s"],
                    taken=dict(threads=point["block"], registers=registers, shared_bytes=0))
    if what == "measure":
        if point == BAD["crash"]:
            log("measure", point, began)
            os.abort()
        if point == BAD["hang"]:
            log("measure", point, began)
            parent = os.getppid()
            while os.getppid() == parent:
                time.sleep(0.1)
        time.sleep(SETTINGS["measure_s"])
        log("measure", point, began)
        if point == BAD["wrong"]:
            return dict(state="wrong", reason="3 of 8 elements differ")
        return dict(state="complete", reason="", times_ms=[time_ms(point)] * 7,
                    default_ms=[time_ms(DEFAULT)] * 7, compile_ms=0.0, check_ms=1.0, timing_ms=2.0,
                    resources=dict(registers=32))
    if what == "spend":
        return dict(launches=int(1e6 * request["seconds"] / time_ms(point or DEFAULT)))
    if what == "prove":
        if SETTINGS["proof_crashes"]:
            os.abort()
        sides = [DEFAULT, *request["points"]]
        noise = [1 + 0.001 * (n % 7) for n in range(request["rounds"])]
        wrong = ["element 0 is 1" if each == BAD["later"] else None for each in request["points"]]
        return dict(rounds_ms=[[time_ms(side) * each for each in noise] for side in sides],
                    wrong=wrong, repeats=[True for _ in wrong])


say(dict(ready=1))
for line in sys.stdin:
    say(answer(json.loads(line)))
"""


def python(folder, **changes):
    """Return the path of the executable, and that of its log."""
    log, path = folder / "log.jsonl", folder / "simulated_python"
    settings = {
        "name": "simulated",
        "space": SPACE,
        "default": DEFAULT,
        "bad": BAD,
        "registers": REGISTERS,
        "sizes": [8],
        "failing": [],
        "proof_crashes": False,
        "devices": ["NVIDIA H200"] * 2,
        "bytes": None,
        "flops": None,
        "compile_s": 0.0,
        "compiler_fails": False,
        "measure_s": 0.0,
        "log": str(log),
        **changes,
    }
    code = _CODE.replace("{settings!r}", repr(json.dumps(settings)))
    path.write_text(f"#!{sys.executable} -S\n{code}")
    path.chmod(0o755)
    log.touch()
    return path, log


def read_log(log):
    """Return tuples of what, GPU, point, begin and end in seconds, and process."""
    return [tuple(json.loads(line)) for line in Path(log).read_text().splitlines()]
