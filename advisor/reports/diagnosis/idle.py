"""The words on idle time that no finding is about: where it lies, what the CPU does then, and what
would tell more.

What would tell more depends on what was recorded: nothing is asked for that the file has, and no
other GPU, graph or rank is named where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpuadvisor.domain.profile import SYSTEM_CALLS, CallKind
from gpuadvisor.reports import figures
from gpuadvisor.reports.diagnosis.account import MOST, IdleWithoutFinding, place
from gpuadvisor.reports.profile.wording import PARTS
from gpuadvisor.rules.facts.functions import built_in_within
from gpuadvisor.rules.facts.host_idle import (
    FEWEST_SAMPLES,
    MOSTLY,
    CpuSamples,
    SampledPlace,
    SystemCalls,
)
from gpuadvisor.rules.facts.idle import Alike
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.time_breakdown import TimeCategory
from gpuadvisor.rules.facts.turns import Turns, turns
from gpuadvisor.rules.facts.window import FILLED
from gpuadvisor.rules.paces import queue

LINES_THAT_LAUNCH = "`gpuadvisor profile --stacks SCRIPT` names the lines that launch"
"""What would explain idle time in which the CPU launches, where the operators are recorded."""
STACKS = "--stacks"
"""In what would explain idle time, where the lines of Python do."""
WOULD_TELL = {
    TimeCategory.LAUNCHING: "`gpuadvisor profile SCRIPT` records the operators that launch",
    TimeCategory.WAITING_FOR_DATA: "`py-spy record` of a worker shows what loading does",
    TimeCategory.SYNCHRONIZING: "`gpuadvisor profile --stacks SCRIPT` names the line that waits",
    TimeCategory.ALLOCATING: "`gpuadvisor profile --stacks SCRIPT` names the line that allocates",
    TimeCategory.OTHER_HOST: "`gpuadvisor profile --stacks SCRIPT` shows what the CPU does then",
    TimeCategory.STARTING: "`gpuadvisor profile SCRIPT` records steps after the start",
    TimeCategory.PROFILER: "a recording of fewer things (no stacks, shapes or memory) is quicker",
    TimeCategory.MIGRATING: "no call launches what moves when it is touched; Nsight Systems' page"
    " faults (`nsys profile --cuda-um-gpu-page-faults=true --cuda-um-cpu-page-faults=true`) tell"
    " where that is, and `cudaMemPrefetchAsync` moves it before",
    TimeCategory.BETWEEN_KERNELS: "hardware counters (`gpuadvisor profile --ncu SCRIPT`) of the"
    " kernels around tell more",
    TimeCategory.FINISHED: "a trace of every process that uses the GPUs tells who works then",
    TimeCategory.NOT_RECORDED: "`gpuadvisor profile SCRIPT` records operators and Python",
}
"""What would explain idle time that no finding claims, by its cause."""
CPU_OF_PROGRAM = (
    "`nsys profile --trace=cuda,nvtx,osrt --sample=process-tree PROGRAM` records what the CPU does"
    " then"
)
SAMPLES_OF_PROGRAM = (
    "samples of the CPU (`nsys profile --sample=process-tree PROGRAM`) would tell what it computes"
)
"""What would tell more where calls into the operating system were recorded, and take little."""
NAMED_PLACES = 3
"""Libraries in which the CPU was sampled, and their functions, that a sentence names, at most."""
_OF_PROFILER = ("libcupti", "libToolsInjection")
"""How the names of Nsight Systems' own libraries in the program begin."""
_LONGEST_FUNCTION = 80  # characters
NAMED_CALLS = 3
"""Calls into the operating system that a sentence names, at most."""
LEAST_OF_CALLS = 1 - FILLED
"""Share of the CPU's own time from which on a call into the operating system is named: with less
that time is as good as filled by the rest."""
WAITS_FOR = {
    **dict.fromkeys(("poll", "ppoll", "select", "pselect", "epoll_wait", "epoll_pwait"),
                    "a file, a pipe, a socket, or a time to pass"),
    **dict.fromkeys(("pthread_cond_wait", "pthread_cond_timedwait", "pthread_mutex_lock", "futex",
                     "sem_wait", "sem_timedwait", "pthread_join", "pthread_barrier_wait"),
                    "another thread or process"),
    **dict.fromkeys(("waitpid", "wait4", "waitid"), "another process"),
    **dict.fromkeys(("nanosleep", "clock_nanosleep", "usleep", "sleep"), "a time to pass"),
}  # fmt: skip
"""Calls into the operating system that only wait, and for what."""
LINES_OF_PROGRAM = "`nsys profile --cudabacktrace=all PROGRAM` names the lines of these calls"
WOULD_TELL_OF_PROGRAM = {
    **dict.fromkeys((TimeCategory.OTHER_HOST, TimeCategory.NOT_RECORDED), CPU_OF_PROGRAM),
    **dict.fromkeys(
        (TimeCategory.LAUNCHING, TimeCategory.SYNCHRONIZING, TimeCategory.ALLOCATING),
        LINES_OF_PROGRAM,
    ),
    TimeCategory.STARTING: "a recording of a longer run has more than its start",
    TimeCategory.BETWEEN_KERNELS: "hardware counters (`ncu --set full -o counted PROGRAM`) of the"
    " kernels around tell more",
}
"""What would explain idle time of a program that Nsight Systems recorded, without a script."""
COVERED = (
    TimeCategory.OTHER_HOST,
    TimeCategory.ALLOCATING,
    TimeCategory.STARTING,
    TimeCategory.DEVICE,
    TimeCategory.UNKNOWN,
)
"""Idle time of which the call that the CPU is in tells something."""


def sentences(
    found: IdleWithoutFinding, facts: Facts, script: str, ranks_known: bool
) -> Iterator[str]:
    """Yield what no finding is about, where most of it lies, what the CPU does then, and what would
    explain it; `script` is the name of the user's script, `SCRIPT` where it is not known."""
    part = found.largest.part
    how, doing = would_tell(facts, part, script, ranks_known), ""
    if part is TimeCategory.OTHER_HOST:
        doing, how = _doing(facts, how)
    elif STACKS in how and (line := _line(facts, part)):
        doing, how = line, ""  # stacks were recorded
    told, how = own_time(facts, how) if part in OF_HOST else ((), how)
    idle = "the GPU was idle" if found.device is None else "the GPUs were idle (their mean)"
    yield (
        f"No finding to fix is about {100 * found.share:.1f} % of the run, in which {idle};"
        f" the largest part is {100 * found.largest_share:.1f} %,"
        f" {PARTS[part].removeprefix('idle: ')}{f' ({doing})' if doing else ''}."
    )
    if found.gap is not None:
        at_once = found.gap.cause_ns > MOST * found.largest.time_ns
        steps = len(facts.steps.steps) if facts.steps is not None else 0
        again = "" if at_once else _again(found.gap.alike, found.largest.time_ns, steps)
        where = "Most of it at once" if at_once else "Its longest gap"
        whose = "" if found.device is None else f", on GPU {found.device}"
        yield f"{where}{whose}: {place(found.gap)}{again}."
        yield from _meanwhile(found, facts)
    yield from told
    if part is TimeCategory.BETWEEN_KERNELS:
        yield from _after_each(found, facts)
    if how:
        how = how.replace("SCRIPT", script)
        yield f"{how[:1].upper()}{how[1:]}."


OF_HOST = (TimeCategory.OTHER_HOST, TimeCategory.NOT_RECORDED)
"""Idle time that is the CPU's own."""


def own_time(facts: Facts, how: str = CPU_OF_PROGRAM) -> tuple[list[str], str]:
    """Return what the CPU called of the operating system and executed in its own time, in
    sentences, and what would tell more than that and `how`: nothing where these tell it."""
    in_system = sampled = ""
    if how == CPU_OF_PROGRAM and SYSTEM_CALLS in facts.profile.header.facts:
        how = SAMPLES_OF_PROGRAM
    if facts.system_calls is not None:
        in_system, how = _in_system(facts.system_calls, how)
    if facts.cpu_samples is not None:
        sampled, how = _sampled(facts.cpu_samples, how)
    return [each for each in (in_system, sampled) if each], how


def _in_system(calls: SystemCalls, how: str) -> tuple[str, str]:
    """Return what the CPU called of the operating system in its own time, and what would tell more:
    nothing where these calls are most of it."""
    named = [each for each in calls.named if each[1] >= LEAST_OF_CALLS][:NAMED_CALLS]
    if calls.share > MOST and named:
        told = ", ".join(f"{name} {figures.percent(share)}{_why(name)}" for name, share in named)
        return f"Of its own time the CPU is in calls of the operating system: {told}.", ""
    # What Nsight Systems sees are calls of the C library: Rust and Go wait by calls of their own.
    rest = (
        "it computes, or is in what is not recorded: short calls, system calls without the C"
        " library, page faults."
    )
    if not calls.named:
        return f"No call into the operating system was recorded in its own time: {rest}", how
    told = ", ".join(name for name, _ in named)
    mostly = f" ({told})" if told else ""
    return (
        "Calls into the operating system that were recorded take"
        f" {figures.percent(calls.share)} of the CPU's own time{mostly}: else {rest}"
    ), how


def _sampled(found: CpuSamples, how: str) -> tuple[str, str]:
    """Return in which libraries and functions the CPU was in its own time, and what would tell
    more: nothing where samples name them."""
    count = figures.count(found.samples, "sample")
    if found.samples < FEWEST_SAMPLES:
        return (
            f"Samples of what it executes in that time: {found.samples}, too few to tell; it waits,"
            " or the recording is short."
        ), "" if how == SAMPLES_OF_PROGRAM else how
    if not found.modules:
        return f"No library has much of {count} of the launching thread in that time.", ""
    text = f"Of {count} of the launching thread in its own time, {_places(found.modules)}"
    if found.functions:
        text += f"; by function, {_places(found.functions)}"
    return f"{text}. Samples are taken while it runs, not while it waits.", ""


def _places(found: Sequence[SampledPlace]) -> str:
    """Return `51 to 61 % are in python3.11, 33 to 43 % in libc.so.6`."""
    told = [f"{share_of_samples(each)} in {place_of_cpu(each)}" for each in found[:NAMED_PLACES]]
    told[0] = told[0].replace(" % in ", " % are in ", 1)
    return ", ".join(told)


def share_of_samples(place: SampledPlace) -> str:
    """Return the interval of a share of samples: `51 to 61 %`, `99 %` where both ends read so."""
    low, high = f"{100 * place.low:.0f}", f"{100 * place.high:.0f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def place_of_cpu(place: SampledPlace) -> str:
    """Return where the CPU was sampled: `_Py_dg_dtoa of python3.11`, or the library alone."""
    module = place.module or "a library that is not known"
    if module.startswith(_OF_PROFILER):
        module += " (of the profiler)"
    function = place.function[:_LONGEST_FUNCTION]
    return f"{function} of {module}" if function else module


def _why(call: str) -> str:
    return f" (waits for {WAITS_FOR[call]})" if call in WAITS_FOR else ""


def _line(facts: Facts, part: TimeCategory) -> str:
    """Return the line of Python that the CPU is in for most of some idle time; empty where stacks
    were not recorded."""
    source, where = facts.places.of_parts({f"idle/{part}": 1.0})
    if source is None:
        return ""
    function = f" in {where.function}" if where and where.function else ""
    return f"{source}{function}{figures.of_it(where.source_share) if where else ''}"


def _doing(facts: Facts, how: str) -> tuple[str, str]:
    """Return what the CPU does in its other work, as far as that is known, and what would tell
    more of it."""
    known = facts.host_doing
    told = [f"{known.name} for {figures.percent(known.share)} of it"] if known else []
    if line := _line(facts, TimeCategory.OTHER_HOST):
        told.append(line)
        how = ""  # stacks were recorded
    elif known is not None and known.share >= MOSTLY and facts.profile.header.source != "nsys":
        how = "`gpuadvisor profile --stacks SCRIPT` names the line that does that"
    return "; ".join(told), how


def _meanwhile(found: IdleWithoutFinding, facts: Facts) -> Iterator[str]:
    """Yield which call into CUDA the CPU is in for most of the longest gap, or that it is in
    none, or which function that Python calls it is in."""
    if found.gap is None or not len(facts.host):
        return
    begin, end = found.gap.begin_ns, found.gap.begin_ns + found.gap.duration_ns
    part = found.largest.part
    if part is TimeCategory.NOT_RECORDED and facts.host.share_within(begin, end) <= 1 - FILLED:
        known = facts.system_calls is not None
        rest = "" if known else ": it computes, reads, or waits for something else"
        yield f"The CPU is in no call into CUDA then{rest}."
    longest = facts.host.longest_within(begin, end) if part in COVERED else None
    if longest is not None and longest[1] > MOST:
        name = facts.profile.header.texts[longest[0]]
        yield f"The CPU is in {name} then{figures.of_it(longest[1])}."
    elif part is TimeCategory.OTHER_HOST:
        launching = np.unique(facts.launched.call[facts.launched.known])
        threads = np.stack((facts.host.process[launching], facts.host.thread[launching]))
        called = built_in_within(facts.profile, np.unique(threads, axis=1), begin, end)
        if called is not None and called[1] > MOST:
            name = called[0]
            why = f", which waits for {WAITS_FOR[name]}" if name in WAITS_FOR else ""
            yield f"The CPU is in Python's {name} then{figures.of_it(called[1])}{why}."


def _after_each(found: IdleWithoutFinding, facts: Facts) -> Iterator[str]:
    """Yield how long the device is idle after a kernel, where most kernels are short: these gaps
    are as many as there are kernels, also in a CUDA graph."""
    of_kernels = queue(facts)
    if of_kernels is None or len(facts.busy) > 1:
        return
    kernels, short = of_kernels.kernels, of_kernels.short_kernels
    if kernels and short > MOST * kernels:
        each = figures.nanoseconds(found.largest.time_ns / kernels)
        yield (
            f"On average that is {each} after each of its {kernels:,} kernels, of which"
            f" {figures.percent(short / kernels)} run for less than 10 µs: fewer kernels that do"
            " more each, fused or of more samples at once, leave out such gaps."
        )


def would_tell(facts: Facts, part: TimeCategory, script: str, ranks_known: bool) -> str:
    """Return what would explain idle time of a cause that no finding is about."""
    if part is TimeCategory.DEVICE:
        return _of_not_begun(facts, ranks_known)
    if part is TimeCategory.UNKNOWN:
        return _of_unknown_launches(facts)
    if part is TimeCategory.LAUNCHING and facts.profile.rows("operators"):
        return LINES_THAT_LAUNCH
    of_program = facts.profile.header.source == "nsys" and script == "SCRIPT"
    return WOULD_TELL_OF_PROGRAM.get(part, WOULD_TELL[part]) if of_program else WOULD_TELL[part]


def _of_not_begun(facts: Facts, ranks_known: bool) -> str:
    """Return what may have kept work that was launched from beginning."""
    may, ways = [], []
    if facts.work.in_graph.any() or facts.host.of_kinds((CallKind.GRAPH_LAUNCH,)).any():
        may.append("kernels of CUDA graphs may be missing in the recording (profilers lose some)")
    if facts.communication or len(facts.busy) > 1:
        may.append("another GPU may have been waited for")
        if not ranks_known:
            ways.append("a trace of each rank tells who is waited for")
    if not may:
        found = turns(facts.work, facts.launched, facts.threads, facts.window.begin_ns)
        alike = "" if found is None else _alike_turns(found)
        may.append(f"another program may have had the GPU{alike}")
    ways.append("`nsys profile --gpuctxsw=true PROGRAM` records whose turn it was")
    return f"{', or '.join(may)}: {', and '.join(ways)}"


def _alike_turns(found: Turns) -> str:
    """Return that gaps last as turns of several programs do."""
    least, most = figures.nanoseconds(found.shortest_ns), figures.nanoseconds(found.longest_ns)
    return (
        f" ({found.count:,} times, before different work, what was launched began {least} to {most}"
        " late: so alike are the turns of programs that share a GPU)"
    )


def _of_unknown_launches(facts: Facts) -> str:
    """Return what would tell what launched work of which the call was not recorded."""
    if not len(facts.host):
        is_nsys = facts.profile.header.source == "nsys"
        way = "nsys profile --trace=cuda PROGRAM" if is_nsys else "gpuadvisor profile SCRIPT"
        return f"the recording has no calls into CUDA, which `{way}` records"
    known = facts.launched.known
    before = facts.work.begin_ns < facts.work.begin_ns[known].min() if known.any() else ~known
    if np.count_nonzero(~known & before) > MOST * np.count_nonzero(~known):
        host = ", and what the CPU did then" if len(facts.unseen) else ""
        return f"a recording that begins some steps earlier has the launches{host}"
    return "the recording lacks the calls that launched what came next"


def _again(alike: Alike | None, of_ns: int, steps: int) -> str:
    """Return that the same gap comes again and again, where that is most of an idle time."""
    if alike is None or alike.cause_ns <= MOST * of_ns:
        return ""
    least, most = figures.nanoseconds(alike.shortest_ns), figures.nanoseconds(alike.longest_ns)
    often = ", once a step" if alike.count == steps else ""
    share = 100 * min(alike.cause_ns / of_ns, 1.0)
    lasts = f"{least} to {most}" if least != most else most
    return f"; the same gap comes {alike.count:,} times{often} ({lasts} each, {share:.1f} % of it)"
