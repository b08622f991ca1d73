"""A call of Kernel Tuner's `tune_kernel`, as `gpuadvisor.kernel_tuner` leaves it in a folder.

`call.json` says what the kernel is and holds each point with its grid, block, shared memory and the
number of its text, which were computed where the call was made; `arrays.npz` holds the arguments,
the answers and the constants.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpuadvisor.domain.kernels import Array, Kernel

CALL = "call.json"


def is_call(file: str) -> bool:
    """Return whether a kernel file stands for such a call."""
    return Path(file).with_name(CALL).is_file()


def declare(file: str) -> None:
    """Declare the kernel of the call in this file's folder."""
    import numpy

    folder = Path(file).parent
    call = json.loads((folder / CALL).read_text("utf-8"))
    arrays = numpy.load(folder / "arrays.npz")
    names = list(call["parameters"])
    launches = {tuple(point): launch for point, launch in zip(call["points"], call["launches"],
                                                              strict=True)}  # fmt: skip

    def launch(p: dict[str, Any], part: str) -> Any:
        return launches[tuple(p[name] for name in names)][part]

    texts = call["texts"]

    def text(p: dict[str, Any]) -> str:
        return str(texts[launch(p, "text")])

    answers = [arrays[f"answer{place}"] for place in call["compared"] if call["has_answer"]]
    Kernel(
        texts[0] if len(texts) == 1 else text,
        name=call["name"],
        parameters=call["parameters"],
        default=call["default"],
        problems=[call["problem"]],
        only=[tuple(point) for point in call["points"]],
        grid=lambda p: launch(p, "grid"),
        block=lambda p: launch(p, "block"),
        shared_bytes=lambda p: launch(p, "shared_bytes"),
        arguments=[_argument(arrays, place, call) for place in range(call["arguments"])],
        reference=(lambda *arguments: tuple(answers)) if answers else None,
        tolerance=call["tolerance"],
        absolute_tolerance=call["absolute_tolerance"],
        options=call["options"],
        constants={name: arrays[f"constant {name}"] for name in call["constants"]},
        file=file,
    )


def _argument(arrays: Any, place: int, call: dict[str, Any]) -> Any:
    value = arrays[f"argument{place}"]
    if place in call["scalars"]:
        return value.item()
    is_output = place in call["compared"]
    return Array(tuple(value.shape), str(value.dtype), value, is_output)
