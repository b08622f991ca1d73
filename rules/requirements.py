"""What a rule cannot do without, and how each of it is measured.

A rule names its needs; where one is missing the rule says nothing, and the diagnosis says how to
measure it. Missing is also what contradicts itself: a trace with calls that copy and without any
copy was recorded without copies, and its idle time is none. What was recorded and did not happen is
not missing: a rule looks at no copies, and finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuadvisor.domain.profile import CallKind, Direction, Range
from gpuadvisor.domain.telemetry import State
from gpuadvisor.rules.evidence import Evidence

if TYPE_CHECKING:  # they load numpy, which the daemon does without
    from gpuadvisor.rules.facts.summary import Facts

Missing = Callable[[Evidence], str | None]
"""Returns why something is missing, in words; None where it is there."""

WITH_PROFILE = "gpuadvisor profile SCRIPT"
WITH_STEPS = "gpuadvisor profile SCRIPT (which marks its steps)"
WITH_COUNTERS = "gpuadvisor profile --ncu SCRIPT"
WITH_DAEMON = "gpuadvisor daemon start (then record some seconds)"
WITH_MORE_SECONDS = "record some seconds (the daemon runs)"
NOT_ON_THIS_GPU = "not on this GPU"


@dataclass(frozen=True)
class Requirement:
    """One kind of evidence."""

    missing: Missing
    how: str
    """How to measure it: a command, with words in brackets where it needs some."""
    of_pytorch: bool = False
    """Whether only programs of PyTorch have it, however they are recorded."""
    other_way: Callable[[Evidence], str | None] | None = None
    """Returns another way, where what is known of the run tells that the usual one leads nowhere;
    None where that leads somewhere."""

    def way(self, evidence: Evidence) -> str:
        """Return how to measure it in another run like this one."""
        other = None if self.other_way is None else self.other_way(evidence)
        return other or self.how


_OF_PYTORCH = ("operators", "memory")
"""Tables of a profile that only the torch profiler fills."""


def _of_profile(
    missing: Callable[[Facts], str | None], how: str = WITH_PROFILE, of_pytorch: bool = False
) -> Requirement:
    """Require something of the profile; `missing` says why its facts lack it."""

    def look(evidence: Evidence) -> str | None:
        return "there is no profile" if evidence.facts is None else missing(evidence.facts)

    return Requirement(look, how, of_pytorch)


def fact(name: str) -> Requirement:
    """Require a fact of the profile, in the words of `facts.summary.FACTS`."""
    of_pytorch = name in _OF_PYTORCH
    return _of_profile(lambda facts: facts.not_measured.get(name), of_pytorch=of_pytorch)


def table(name: str, how: str = WITH_PROFILE) -> Requirement:
    """Require a table of the profile, or of one of its columns (`table.column`)."""

    def missing(facts: Facts) -> str | None:
        told, of = facts.profile.header.not_measured, name.partition(".")[0]
        why = told.get(name, told.get(of))
        return why or (None if facts.profile.rows(of) else f"no {name}")

    return _of_profile(missing, how, name.partition(".")[0] in _OF_PYTORCH)


def sampled(*metrics: str) -> Requirement:
    """Require telemetry, by our names of metrics, of at least one GPU."""

    def absent(evidence: Evidence) -> str | None:
        gpus = () if evidence.telemetry is None else evidence.telemetry.gpus
        if not gpus or any(all(name in gpu.series for name in metrics) for gpu in gpus):
            return None
        never = (name for name in metrics if not any(name in gpu.series for gpu in gpus))
        return next(never, metrics[-1])

    def missing(evidence: Evidence) -> str | None:
        if evidence.telemetry is None:
            return _no_telemetry(evidence)
        name = absent(evidence)
        return None if name is None else f"telemetry has no {name}"

    def other_way(evidence: Evidence) -> str | None:
        name = absent(evidence)
        if name is None or evidence.telemetry is None:
            return _more_seconds(evidence)
        told = [gpu.unavailable.get(name) for gpu in evidence.telemetry.gpus]
        if all(each is not None and each.state is State.NOT_SUPPORTED for each in told):
            return NOT_ON_THIS_GPU
        return WITH_MORE_SECONDS if None in told else None

    return Requirement(missing, WITH_DAEMON, other_way=other_way)


def _no_telemetry(evidence: Evidence) -> str:
    return evidence.no_telemetry or "there is no telemetry of that time"


def _more_seconds(evidence: Evidence) -> str | None:
    """Return what is left to do where a daemon was running all the time."""
    return WITH_MORE_SECONDS if evidence.no_telemetry else None


TELEMETRY = Requirement(
    lambda evidence: None if evidence.telemetry is not None else _no_telemetry(evidence),
    WITH_DAEMON,
    other_way=_more_seconds,
)
"""Telemetry of some GPU, whatever of it could be read."""


def _lacks_processes(evidence: Evidence) -> str | None:
    telemetry = evidence.telemetry
    if telemetry is not None and any(gpu.processes is not None for gpu in telemetry.gpus):
        return None
    if telemetry is None and evidence.no_telemetry:
        return evidence.no_telemetry
    withheld = None if telemetry is None else telemetry.withheld
    return withheld.rstrip(".") if withheld else "it is not known which processes used the GPU"


PROCESSES = Requirement(_lacks_processes, WITH_DAEMON, other_way=_more_seconds)
"""Processes on GPUs, as the driver lists them."""


def either(*choices: tuple[Requirement, ...]) -> Requirement:
    """Require all of one choice, of which the first is the best one."""

    def missing(evidence: Evidence) -> str | None:
        lacks = [
            next((why for need in needs if (why := need.missing(evidence))), None)
            for needs in choices
        ]
        return None if None in lacks else lacks[0]

    first = choices[0]
    return Requirement(
        missing, first[0].how, any(need.of_pytorch for need in first), first[0].other_way
    )


def _lacks_kernels(facts: Facts) -> str | None:
    if facts.profile.header.source == "ncu":
        return "hardware counters do not tell when kernels ran"
    return facts.not_measured.get("kernels")


def _lacks_work(facts: Facts) -> str | None:
    """Return why no work of a device is known: copies are some, where nothing launched a kernel
    that the recording may lack."""
    lacks = _lacks_kernels(facts)
    told = facts.profile.header.not_measured
    if lacks is None or not len(facts.work) or "kernels" in told or not facts.has_timeline:
        return lacks
    launch = facts.host.of_kinds((CallKind.LAUNCH, CallKind.GRAPH_LAUNCH))
    return lacks if launch.any() else None


def _lacks_launches(facts: Facts) -> str | None:
    """Return why the run cannot be played again."""
    return _lacks_kernels(facts) or _lacks_play(facts)


def _lacks_play(facts: Facts) -> str | None:
    lacks = facts.not_measured.get("idle")
    if lacks is not None:
        return lacks
    directions = facts.profile.columns("copies", ("direction",))["direction"]
    if facts.calls_that_copy and not (directions != Direction.MEMSET).any():
        return "calls that copy were recorded, but not the copies"
    if facts.timeline is None:
        return "no call that launched one of the kernels was recorded"
    return None


def _lacks_idle(facts: Facts) -> str | None:
    return _lacks_kernels(facts) or _lacks_causes(facts)


def _lacks_causes(facts: Facts) -> str | None:
    lacks = _lacks_play(facts) or facts.fitness.no_idle
    if lacks is not None:
        return lacks
    if _unknown_launch_share(facts) > MOST_UNKNOWN:
        return "the calls that launched many of the kernels were not recorded"
    return None


def _unknown_launch_share(facts: Facts) -> float:
    """Return the share of the kernels (0 to 1) whose launch was not recorded, of those that began
    after the first one whose launch was: those before were launched before recording began."""
    known = facts.launched.known[: facts.work.kernels]
    begin = facts.work.begin_ns[: facts.work.kernels]
    if not known.any():
        return 1.0 if len(known) else 0.0
    return 1.0 - float(known[begin >= begin[known].min()].mean())


MOST_UNKNOWN = 0.25
"""Largest share of the kernels whose launch may be unknown, of those that began after the first one
whose launch is known: what was launched before recording began is none of them. [own]"""


KERNELS = _of_profile(_lacks_kernels)
"""A timeline of kernels."""
LAUNCHES = _of_profile(_lacks_launches)
"""A run that can be played again with kernels that take less time: those launched before recording
began count with the others, and whether the run is steady does not matter."""
IDLE = _of_profile(_lacks_idle)
"""Idle time with its causes, of a steady run: kernels, copies and calls into CUDA."""
LOOP = _of_profile(lambda facts: _lacks_idle(facts) or facts.no_loop)
"""Idle time with its causes, of work that comes again and again."""
LOOP_OF_WORK = _of_profile(
    lambda facts: _lacks_work(facts) or _lacks_causes(facts) or facts.no_loop
)
"""The same, also of a program that only copies."""
RECURRING = _of_profile(lambda facts: facts.fitness.no_idle or facts.no_loop)
"""More than a start, and more than events that come once or twice: a copy that a program makes
before its first kernel tells nothing of what it does for long."""


def _lacks_ranges(facts: Facts) -> str | None:
    """Calls into the operating system are ranges that nobody marked."""
    told = facts.profile.header.not_measured.get("ranges")
    kinds = set(facts.profile.columns("ranges", ("kind",))["kind"].tolist())
    return told or (None if kinds - {Range.SYSTEM} else "no ranges")


RANGES = _of_profile(_lacks_ranges, of_pytorch=True)
"""Ranges that were marked, DataLoaders' waiting among them: what rules look for in them is what
PyTorch marks."""


def _lacks_cpu_steps(facts: Facts) -> str | None:
    """A trace of a program on a GPU that lacks kernels is none of a program on the CPU."""
    of_gpu = ("kernels", "copies", "calls", "synchronizations")
    if facts.profile.header.devices or any(facts.profile.rows(table) for table in of_gpu):
        return "the program uses a GPU"
    return None if facts.steps is not None else "no steps were recorded"


def _lacks_host_ranges(facts: Facts) -> str | None:
    kinds = facts.profile.columns("ranges", ("kind",))["kind"].tolist()
    marked = {Range.USER, Range.STEP, Range.LOADER}
    if marked & set(kinds):
        return None
    begins = " begins in the part that is looked at" if _is_of_part(facts) else ""
    return f"nothing that the program or PyTorch marked{begins}"


def _is_of_part(facts: Facts) -> bool:
    """Say whether only a part of the recording is looked at: what begins before it is not known."""
    return facts.fitness.not_before_ns is not None


def _lacks_steps(facts: Facts) -> str | None:
    if facts.steps is not None:
        return None
    part = "no step begins in the part that is looked at"
    never = part if _is_of_part(facts) else "no steps were recorded"
    return facts.profile.header.not_measured.get("ranges", never)


HOST_RANGES = _of_profile(_lacks_host_ranges)
"""Ranges of the host: where PyTorch marks none, waits for data cannot be told from other work."""
COPY_SIZES = _of_profile(lambda facts: facts.profile.header.not_measured.get("copies.bytes"))
"""The sizes of copies, if there are any."""


def _lacks_copies(facts: Facts) -> str | None:
    """Return why copies are not known; none at all is known where their calls would have been."""
    if facts.profile.rows("copies"):
        return None
    told = facts.profile.header.not_measured.get("copies")
    if told is None and facts.calls_that_copy:
        return "calls that copy were recorded, but not the copies"
    return told or (None if facts.profile.rows("calls") else facts.not_measured.get("copies"))


COPIES = _of_profile(_lacks_copies)
"""Copies, or that there were none."""
COPIES_ALONE = _of_profile(lambda facts: "kernels ran besides" if facts.work.kernels else None)
"""A timeline without any kernel: of a program that only copies."""
OPERATORS = fact("operators")
"""Operators of the framework."""
NO_OPERATORS = _of_profile(
    lambda facts: "operators were recorded" if facts.profile.rows("operators") else None
)
"""None of them, as Nsight Systems records none: only what is no call into CUDA is told apart."""
SHAPES = table("operators.shapes")
STEPS = _of_profile(_lacks_steps, WITH_STEPS)
MEMORY = fact("memory")
"""Allocations and releases, with totals."""
LAUNCH_SHAPES = table("kernels.registers")
"""Grid, block, registers and shared memory of each kernel."""
COMMUNICATION = fact("communication")


def _lacks_ranks(evidence: Evidence) -> str | None:
    """A run of one rank that never communicates has none that it waits for."""
    facts = evidence.known_facts
    if evidence.together is not None:
        return None
    is_alone = (facts.profile.header.world_size or 1) == 1
    return None if is_alone and not facts.communication else "there is a profile of one rank only"


RANKS = Requirement(
    _lacks_ranks,
    "gpuadvisor import FOLDER (with a trace of each rank)",
)
SCRIPT = Requirement(
    lambda evidence: None if evidence.measured is not None else "the script was not run",
    "gpuadvisor diagnose SCRIPT",
    of_pytorch=True,
)
"""What the harness saw of the script: loaders, optimizers, whether it trains."""
DEVICE = _of_profile(
    lambda facts: (
        None
        if any(each.compute_capability for each in facts.profile.header.devices)
        else "the profile does not describe its GPU"
    )
)
"""Compute capability and limits of the GPU."""
CEILINGS = _of_profile(
    lambda facts: None if facts.ceilings else "the limits of the GPU are not known",
    "gpuadvisor bench-device",
)
"""What the GPU can do at most, measured or from its data sheet."""
CPU_STEPS = _of_profile(_lacks_cpu_steps)
"""Steps of a program that was seen to use no GPU."""
