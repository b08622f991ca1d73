"""A tuned kernel's points in the languages of those who use them: a header, configurations, CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence

from gpuadvisor.domain.kernel_records import KernelResult
from gpuadvisor.domain.kernel_rules import shown
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.study import Objective, TrialState, Verdict
from gpuadvisor.errors import UsageError
from gpuadvisor.reports import figures

LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""What a `triton.Config` takes beside the kernel's own constants."""
_CSV_HEAD = ("state", "time_ms", "gain", "compile_ms", "registers", "shared_bytes", "local_bytes",
             "reason")  # fmt: skip
_CHOICE = """\
/* The architecture that host and device code are compiled for; for several at once, say which the
   points are for: -DGPUADVISOR_ARCH=900. Without it, and for others, the defaults hold. */
#if !defined(GPUADVISOR_ARCH)
#  if defined(__CUDACC_RTC__) && defined(__CUDA_ARCH__)
#    define GPUADVISOR_ARCH __CUDA_ARCH__
#  elif defined(__CUDA_ARCH_LIST__)
#    define GPUADVISOR_ONLY_(one, more, ...) more
#    define GPUADVISOR_IS_ONE_(...) GPUADVISOR_ONLY_(__VA_ARGS__, 1, 1)
#    define GPUADVISOR_FIRST_(one, ...) one
#    define GPUADVISOR_FIRST(...) GPUADVISOR_FIRST_(__VA_ARGS__, 0)
#    if GPUADVISOR_IS_ONE_(__CUDA_ARCH_LIST__) == 1
#      define GPUADVISOR_ARCH GPUADVISOR_FIRST(__CUDA_ARCH_LIST__)
#    endif
#  endif
#endif
#if !defined(GPUADVISOR_ARCH)
#  define GPUADVISOR_ARCH 0
#endif
"""


def header(results: Sequence[KernelResult]) -> str:
    """Return a C header that defines a kernel's parameters by compute capability and sizes.

    Of GPUs with one compute capability the one tuned last counts, as a header cannot tell them
    apart. UsageError where no compute capability is known, or a parameter is no macro.
    """
    kernel, default = results[0].kernel, results[0].default
    prefix = re.sub(r"\W", "_", kernel).upper()
    chosen, left = _by_capability(results)
    if not chosen:
        raise UsageError(
            f"{kernel}: no compute capability is known of the GPUs that it was tuned on"
        )
    guard = f"GPUADVISOR_{prefix}_H"
    lines = [
        f"/* Points of the kernel {_comment(kernel)}, as gpuadvisor tuned it. Generated.",
        *(f"   {_comment(each)}" for each in _provenance(chosen, left)),
        "*/",
        f"#ifndef {guard}",
        f"#define {guard}",
        _CHOICE.rstrip(),
    ]
    sizes = list(dict.fromkeys(name for each in chosen for name in each.problem))
    if sizes:
        named = ", ".join(f"{prefix}_{name}" for name in sizes)
        lines.append(f"/* For one of several sizes define {named} before this. */")
    word = "#if"
    for result in chosen:
        lines.append(f"{word} {_condition(result, chosen, prefix)}")
        lines += _macros(result.best or result.default)
        word = "#elif"
    lines += ["#else  /* the default */", *_macros(default), "#endif", "#endif", ""]
    return "\n".join(lines)


def _by_capability(
    results: Sequence[KernelResult],
) -> tuple[list[KernelResult], list[KernelResult]]:
    """Return the newest result of each capability's newest GPU, and those of other GPUs."""
    devices: dict[tuple[int, int], str] = {}
    chosen: list[KernelResult] = []
    left: list[KernelResult] = []
    for result in results:
        capability = result.compute_capability
        if capability is None or result.verdict is Verdict.NOT_TRIED:
            continue
        is_meant = devices.setdefault(capability, result.device) == result.device
        (chosen if is_meant else left).append(result)
    return chosen, left


def _provenance(chosen: Sequence[KernelResult], left: Sequence[KernelResult]) -> list[str]:
    said = [f"{_of(each)}: {verdict(each)}" for each in chosen]
    said += [
        f"left out, as another GPU of its compute capability is newer: {_of(each)}" for each in left
    ]
    return said


def _of(result: KernelResult) -> str:
    sizes = f", {shown(result.problem)}" if result.problem else ""
    capability = figures.capability(result.compute_capability)
    return f"{result.device}{f' ({capability})' if capability else ''}{sizes}"


def verdict(result: KernelResult) -> str:
    """Return what was shown of a result as a clause."""
    speedup = result.speedup
    if result.best is not None and speedup is not None:
        interval = figures.interval(speedup.ci99_low, speedup.ci99_high)
        of = "less energy than the default"
        if result.objective is not Objective.ENERGY:
            of = "the default's speed"
        return f"{figures.ratio(speedup.ratio)} [99 % interval {interval}] {of}"
    if result.verdict is Verdict.NO_GAIN:
        return "the default is as good as the best found"
    if result.verdict is Verdict.INCONCLUSIVE:
        return "inconclusive, so the default"
    return "not tried"


def _condition(result: KernelResult, chosen: Sequence[KernelResult], prefix: str) -> str:
    assert result.compute_capability is not None
    major, minor = result.compute_capability
    arch = f"GPUADVISOR_ARCH == {100 * major + 10 * minor}"
    if not result.problem:
        return arch
    for name, value in result.problem.items():
        if isinstance(value, str) or not float(value).is_integer():
            raise UsageError(
                f"{result.kernel}: the size {name}={value} is no whole number, which a header's "
                "#if needs: use a .json file and gpuadvisor.best"
            )
    same = " && ".join(f"{prefix}_{n} == {int(v)}" for n, v in result.problem.items())
    named = " || ".join(f"defined({prefix}_{name})" for name in result.problem)
    others = [e for e in chosen if e.compute_capability == result.compute_capability]
    if len(others) == 1:
        return f"{arch} && ((!({named})) || ({same}))"
    return f"{arch} && ({named}) && ({same})"


def _macros(point: Mapping[str, Value]) -> list[str]:
    return [
        f"#  define {name} {int(value) if isinstance(value, bool) else value}"
        for name, value in point.items()
    ]


def _comment(text: str) -> str:
    return text.replace("*/", "* /")


def triton_configurations(results: Sequence[KernelResult]) -> str:
    """Return Python with a `triton.Config` for each result, and the list that autotune takes."""
    lines = [
        f'"""Configurations of the Triton kernel {results[0].kernel}, as gpuadvisor tuned it."""',
        "",
        "import triton",
        "",
        "CONFIGS = [  # for triton.autotune(configs=CONFIGS, key=[...]), the best of each size",
    ]
    written: dict[str, list[str]] = {}
    for result in results:
        if result.verdict is not Verdict.NOT_TRIED:
            said = f"{_of(result)}: {verdict(result)}"
            written.setdefault(configuration(result.best or result.default), []).append(said)
    if not written:
        raise UsageError(f"{results[0].kernel}: nothing was proven yet: tune it to the end")
    for config, reasons in written.items():
        lines += [f"    # {' '.join(each.split())}" for each in reasons]
        lines.append(f"    {config},")
    return "\n".join([*lines, "]", ""])


def configuration(point: Mapping[str, Value]) -> str:
    """Return a point as `triton.Config({"BLOCK": 1024}, num_warps=4)`."""
    own = {name: value for name, value in point.items() if name not in LAUNCH_OPTIONS}
    options = [f"{name}={point[name]!r}" for name in LAUNCH_OPTIONS if name in point]
    constants = ", ".join(f"{json.dumps(name)}: {value!r}" for name, value in own.items())
    return f"triton.Config({', '.join([f'{{{constants}}}', *options])})"


def space_csv(results: Sequence[KernelResult]) -> str:
    """Return a line for each point that was evaluated, with its time or why it has none."""
    sizes = list(dict.fromkeys(name for each in results for name in each.problem))
    parameters = list(dict.fromkeys(name for each in results for name in each.default))
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow(["kernel", "device", *sizes, *parameters, *_CSV_HEAD])
    for result in results:
        before = [result.kernel, result.device, *(result.problem.get(name, "") for name in sizes)]
        for each in result.evaluations:
            is_timed = each.state in (TrialState.COMPLETE, TrialState.PRUNED)
            figures_of = (each.time_ms, each.gain) if is_timed else ("", "")
            resources = (
                each.resources.get(n, "") for n in ("registers", "shared_bytes", "local_bytes")
            )
            point = [each.point.get(name, "") for name in parameters]
            told = [each.state, *figures_of, each.compile_ms, *resources, each.reason]
            table.writerow([*before, *point, *told])
    return written.getvalue()
