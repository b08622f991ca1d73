"""All derived facts of a profile, each computed when it is first asked for.

    facts = Facts(profile)
    facts.busy[0].busy_share
    facts.idle[0].causes_ns

`not_measured` names what the profile's tables do not allow: an empty fact that stands there is not
known, one that does not is truly nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gpuadvisor.domain.profile import ON_DEVICE, UNKNOWN, CallKind, Profile, failed_calls
from gpuadvisor.domain.unprofiled import UnprofiledSteps, unprofiled_steps
from gpuadvisor.rules.facts.account import Account, account
from gpuadvisor.rules.facts.backward import Backward, backward
from gpuadvisor.rules.facts.communication import Communication, communication
from gpuadvisor.rules.facts.copied_out import CopiedOut, computing, copied_out, stalls
from gpuadvisor.rules.facts.copies import CopyTime, copy_times
from gpuadvisor.rules.facts.device_work import DeviceWork, device_work
from gpuadvisor.rules.facts.host_idle import (
    NOTHING,
    CpuSamples,
    Doing,
    HostIdle,
    SystemCalls,
    cpu_samples,
    doing,
    host_idle,
    host_recorded,
    outside_operators,
    system_calls,
    unseen,
)
from gpuadvisor.rules.facts.host_waits import Host
from gpuadvisor.rules.facts.idle import IdleTime, idle, launching_times, reach_ns
from gpuadvisor.rules.facts.idle_causes import Threads
from gpuadvisor.rules.facts.intervals import IntArray, Intervals, either, union
from gpuadvisor.rules.facts.kernels import (
    KernelShape,
    KernelTime,
    KernelUses,
    kernel_shapes,
    kernel_times,
    kernel_uses,
)
from gpuadvisor.rules.facts.launches import Calls, LaunchingCalls, Queue, calls, launches, queues
from gpuadvisor.rules.facts.loading import Loading, Waits, loader_waits, loading
from gpuadvisor.rules.facts.memory import (
    Living,
    MemoryUse,
    allocated_at_steps,
    living_at_peak,
    memory_use,
)
from gpuadvisor.rules.facts.memory_holders import HeldMemory, Holder, held_for, held_memory
from gpuadvisor.rules.facts.modules import Modules, ModuleTime, module_times, modules
from gpuadvisor.rules.facts.ncu_kernels import NcuKernel, ncu_kernels
from gpuadvisor.rules.facts.operators import Operators, OperatorTimes, operator_times, operators
from gpuadvisor.rules.facts.optimizers import OptimizerSteps, optimizer_steps
from gpuadvisor.rules.facts.passes import Passes, passes
from gpuadvisor.rules.facts.places import Places
from gpuadvisor.rules.facts.recurring import no_loop, too_short
from gpuadvisor.rules.facts.reduced import Reduced, reduced
from gpuadvisor.rules.facts.roofline import CeilingValues, OperatorPosition, operator_positions
from gpuadvisor.rules.facts.sources import Sources, sources
from gpuadvisor.rules.facts.stalls import KernelStalls, kernel_stalls
from gpuadvisor.rules.facts.starting import Starting, starting
from gpuadvisor.rules.facts.steps import (
    NO_STEPS,
    LaunchedInSteps,
    Repetition,
    Steps,
    find_steps,
    launched_in_steps,
    repetition,
)
from gpuadvisor.rules.facts.time_breakdown import (
    BusyTime,
    Concurrency,
    TimeBreakdown,
    busy,
    concurrency,
)
from gpuadvisor.rules.facts.unfused import Attention, Chain, attention, chains, one_by_one
from gpuadvisor.rules.facts.what_if import FasterKernels, Timeline, faster_kernels, timeline
from gpuadvisor.rules.facts.window import Fitness, Window, window

FACTS: Mapping[str, tuple[str, ...]] = {
    "busy": (),
    "concurrency": (),
    "kernels": ("kernels",),
    "copies": ("copies",),
    "idle": ("calls",),
    "queues": ("calls",),
    "communication": (),
    "steps": ("ranges",),
    "operators": ("operators",),
    "memory": ("memory", "memory.allocated_bytes"),
    "rooflines": ("operators",),
    "counted_kernels": ("metrics",),
}
"""Facts to the tables and columns that they cannot do without, besides what ran on the devices."""
WITHOUT_DEVICE = ("steps", "operators", "memory", "counted_kernels")
"""Facts that say something even where nothing ran on a device."""

_OF_PYTORCH = re.compile(r"\bat::|_ZN2at\d|\baten::|\bc10::|torch|\btriton_", re.IGNORECASE)
"""In names of PyTorch's kernels, of those that its compiler makes, and of its ranges."""


@dataclass(frozen=True)
class Facts:
    """The derived facts of one profile."""

    profile: Profile
    ceilings: CeilingValues = field(default_factory=dict)
    """Ceilings of the devices, which are taken to be alike; without them positions on the roofline
    have no shares."""
    fitness: Fitness = field(default=Fitness())
    """What the recording can show; of a part of it, which one (`facts.fitness`)."""

    @cached_property
    def unprofiled_steps(self) -> UnprofiledSteps | None:
        """The steps that were timed just before the profiler was switched on; None where none were,
        and where the recorded ones are not known."""
        told = unprofiled_steps(self.profile.header.facts)
        return None if self.window.steps is None else told

    @cached_property
    def launched_in_steps(self) -> LaunchedInSteps | None:
        """How much work of the devices each recorded step launched; None without steps."""
        steps = self.window.steps
        return None if steps is None else launched_in_steps(self.work, self.launched, steps)

    @cached_property
    def work(self) -> DeviceWork:
        return device_work(self.profile)

    @cached_property
    def host(self) -> Calls:
        return calls(self.profile)

    @cached_property
    def calls_that_copy(self) -> bool:
        """Whether there are any that did so: what returned an error copied nothing."""
        copying = self.host.name[self.host.of_kinds((CallKind.COPY,))]
        names = {self.profile.header.texts[name] for name in np.unique(copying).tolist()}
        failed = failed_calls(self.profile.header.facts) or ()
        return len(copying) > sum(each.times for each in failed if each.name in names)

    @cached_property
    def launched(self) -> LaunchingCalls:
        return launches(self.work, self.host)

    @cached_property
    def launching(self) -> Operators:
        return operators(self.profile, self.work, self.host, self.launched)

    @cached_property
    def loader_waits(self) -> Waits:
        return loader_waits(self.profile)

    @cached_property
    def busy(self) -> tuple[BusyTime, ...]:
        return busy(self.work)

    @cached_property
    def starting(self) -> Starting:
        """When the host did what a run does once."""
        begins = (self.steps or NO_STEPS).begin_ns
        return starting(self.profile, self.host, self.launched, self.launching, begins)

    @cached_property
    def window(self) -> Window:
        """The run that the profile shows."""
        waits = self.loader_waits.values()
        return window(self.busy, self.steps, waits, self.fitness.not_before_ns)

    @cached_property
    def threads(self) -> Threads:
        """What the threads of the host waited for."""
        launching = launching_times(self.host, self.launching)
        waits, once = self.loader_waits, self.starting
        return Threads(self.host, launching, waits, once, self.host_recorded, self.unseen)

    @cached_property
    def idle(self) -> tuple[IdleTime, ...]:
        """Why each device did not compute, over the whole window."""
        return idle(self.work, self.launched, self.threads, self.window.span)

    @cached_property
    def too_short(self) -> str | None:
        """Why nothing of the recording can be judged, as it is so short; None where it is not."""
        return too_short(self.window, self.work) if self.has_timeline else None

    @cached_property
    def no_loop(self) -> str | None:
        """Why nothing can be said about what the program does again and again."""
        if not self.has_timeline:
            return None
        return self.too_short or no_loop(self.window, self.idle)

    @property
    def looked_at(self) -> tuple[str, ...]:
        """Which part of the recording is looked at and why it can tell little, in sentences without
        a full stop."""
        once = self.too_short if self.fitness.no_idle else self.no_loop
        return tuple(filter(None, (self.fitness.note, once)))

    @cached_property
    def is_of_pytorch(self) -> bool:
        """Whether the program may be one of PyTorch: only Nsight Systems records others as well,
        and there kernels or ranges have PyTorch's names where it is."""
        if self.profile.header.source != "nsys" or self.profile.rows("operators"):
            return True
        return self.has_pytorchs_names

    @cached_property
    def has_pytorchs_names(self) -> bool:
        """Whether a kernel or a range has a name of PyTorch's."""
        return any(_OF_PYTORCH.search(text) for text in self.profile.header.texts)

    @cached_property
    def host_recorded(self) -> bool:
        """Whether anything of the host was recorded but its calls into CUDA."""
        return host_recorded(self.profile)

    @cached_property
    def unseen(self) -> Intervals:
        """When devices worked on what was launched before recording began, or had done so, and
        nothing of the host was recorded yet."""
        return unseen(self.profile, self.host, self.work)

    @property
    def has_timeline(self) -> bool:
        """Whether it is known when things ran: Nsight Compute runs kernels one by one."""
        return "kernels.begin_ns" not in self.profile.header.not_measured

    @cached_property
    def account(self) -> Account:
        """Where the time of each device went; empty without a timeline."""
        parts = (self.busy, self.idle) if self.has_timeline else ((), ())
        return account(self.work, *parts, self.window.span)

    @property
    def time_breakdowns(self) -> Mapping[int, TimeBreakdown]:
        """The account by device and category; empty without a timeline."""
        return self.account.breakdowns

    @cached_property
    def timeline(self) -> Timeline | None:
        """The run, to be played again with something changed."""
        parts = self.work, self.host, self.launched, self.launching, self.loader_waits
        reach = reach_ns(self.work, self.launched)
        ran, rows = self.launching, self.computing
        busy = union(ran.begin_ns[rows], ran.end_ns[rows])
        return timeline(*parts, self.window.begin_ns, reach, busy)

    @cached_property
    def host_idle(self) -> HostIdle:
        """What the host did while the device of the timeline was idle."""
        line = self.timeline
        if line is None:
            return NOTHING
        parts = self.work, self.host, self.launched, self.launching
        not_working = either(line.not_working, self.unseen)
        return host_idle(line.rows, line.begin_ns, not_working, *parts)

    @cached_property
    def copied_out(self) -> CopiedOut:
        """Rounds in which the host copies tensors from the device of the timeline one by one."""
        return copied_out(self.work, self.launched)

    @cached_property
    def computing(self) -> IntArray:
        """Operators that compute on the CPU in these rounds."""
        return computing(self.copied_out, self.launching)

    @cached_property
    def stalls(self) -> CopiedOut:
        """Rounds of copies to the host, with nothing launched between, in which the host was busy
        with something else, such as writing a file, for longer than it waited for copies."""
        found, line = self.copied_out, self.timeline
        if line is None:
            return found
        return stalls(found, self.host_idle.other_times, line.not_working)

    @cached_property
    def host_doing(self) -> Doing | None:
        """What the host did in the time in which it neither launched nor waited."""
        return self.doing_in(self.host_idle.other_times)

    def doing_in(self, times: Intervals) -> Doing | None:
        """Return what the host of the device that was played did in some time."""
        line = self.timeline
        if line is None:
            return None
        calls = self.launched.call[line.rows[self.launched.known[line.rows]]]
        processes, closures = np.unique(self.host.process[calls]), self.optimizer_steps.closures
        return doing(self.profile, self.launching, times, processes, closures)

    @cached_property
    def outside_operators(self) -> float:
        """The share of that time, 0 to 1, in which the host was in no operator."""
        return outside_operators(self.launching, self.host_idle.other_times)

    @cached_property
    def system_calls(self) -> SystemCalls | None:
        """What the thread that launches on the device that was played called of the operating
        system in that time; None where that was not recorded."""
        line, times = self.timeline, self.host_idle.own_times
        if line is None:
            return None
        return system_calls(self.profile, self.host, self.launched, line.rows, times)

    @cached_property
    def cpu_samples(self) -> CpuSamples | None:
        """What the thread that launches executed in that time; None where it was not sampled."""
        line, times = self.timeline, self.host_idle.own_times
        if line is None:
            return None
        return cpu_samples(self.profile, self.host, self.launched, line.rows, times)

    @cached_property
    def repetition(self) -> Repetition:
        """Whether steps launch the same kernels."""
        line = self.timeline
        return repetition(self.profile, self.work, self.host, self.launched, line, self.steps)

    @cached_property
    def loading(self) -> Loading:
        return loading(self.profile)

    @cached_property
    def concurrency(self) -> tuple[Concurrency, ...]:
        return concurrency(self.work)

    @cached_property
    def kernels(self) -> tuple[KernelTime, ...]:
        return kernel_times(self.profile)

    @cached_property
    def kernel_uses(self) -> KernelUses:
        return kernel_uses(self.profile, self.work, self.launching)

    @cached_property
    def kernel_shapes(self) -> tuple[KernelShape, ...]:
        """How the kernels of the device of `kernel_uses` are shaped."""
        return kernel_shapes(self.kernels, self.kernel_uses.device)

    @cached_property
    def kernels_at_once(self) -> float:
        """How many kernels of that device run at a time, on average, while some do."""
        uses = self.kernel_uses
        return uses.time_ns / max(self.work.intervals(uses.rows).total_ns, 1)

    @cached_property
    def optimizer_steps(self) -> OptimizerSteps:
        """What optimizers do themselves, on the device of `kernel_uses`."""
        device, back = self.kernel_uses.device, self.backward
        parts = self.work, self.host, self.launched, self.launching
        return optimizer_steps(self.profile, *parts, back, device)

    @cached_property
    def chains(self) -> tuple[Chain, ...]:
        times = self.optimizer_steps.times
        known, begun = self.launched.known, self.launched.begin_ns
        begins = (self.steps or NO_STEPS).begin_ns
        step = np.where(known, np.searchsorted(begins, begun, "right"), UNKNOWN)
        device, rows = self.kernel_uses.device, self.reduced.reduction
        apart = one_by_one(self.profile, self.work, self.launching, device)
        return chains(self.work, device, begun, times, step, rows, apart)

    @cached_property
    def reduced(self) -> Reduced:
        """Reductions that read what the elementwise kernel before them wrote."""
        return reduced(self.profile, self.work, self.launching, self.kernel_uses.device)

    @cached_property
    def attention(self) -> Attention:
        return attention(self.profile, self.work, self.launching, self.kernel_uses.device)

    @cached_property
    def faster_kernels(self) -> FasterKernels | None:
        """None where nothing tells what launched the kernels."""
        return faster_kernels(self.timeline, self.launched, self.host, len(self.work))

    @cached_property
    def copies(self) -> tuple[CopyTime, ...]:
        return copy_times(self.work)

    @cached_property
    def queues(self) -> tuple[Queue, ...]:
        return queues(self.work, self.launched)

    @cached_property
    def communication(self) -> tuple[Communication, ...]:
        return communication(self.profile, self.work)

    @cached_property
    def steps(self) -> Steps | None:
        return find_steps(self.profile, self.work, self.loader_waits)

    @property
    def step_count(self) -> int:
        """How many steps are known; 0 where none are certain."""
        return len((self.steps or NO_STEPS).steps)

    @cached_property
    def operators(self) -> OperatorTimes:
        return operator_times(self.work, self.launching, self.profile.header.texts)

    @cached_property
    def sources(self) -> Sources:
        """When code of the user's own ran."""
        return sources(self.profile)

    @cached_property
    def modules(self) -> Modules:
        """When modules ran."""
        return modules(self.profile)

    @cached_property
    def backward(self) -> Backward:
        """The backward pass, linked to the forward pass."""
        return backward(self.profile)

    @cached_property
    def passes(self) -> Passes | None:
        """When forward and backward passes of what is trained ran; None where that is not known."""
        line, reads = self.timeline, np.empty(0, np.int64)
        if line is not None:
            reads = np.unique(line.wait_call[line.wait_kind == Host.SYNCHRONIZING])
        return passes(self.profile, self.launching, self.backward, self.host, reads)

    @cached_property
    def module_times(self) -> tuple[ModuleTime, ...]:
        """The time of each module; none where no Python functions were recorded."""
        return module_times(self)

    @cached_property
    def places(self) -> Places:
        """Where in the program something comes from."""
        return Places(self)

    @cached_property
    def memory(self) -> tuple[MemoryUse, ...]:
        return memory_use(self.profile)

    @cached_property
    def living_at_peak(self) -> Mapping[int, Living]:
        """What lives at the peak of each device's memory."""
        return {use.device: living_at_peak(self.profile, use.device) for use in self.memory}

    @cached_property
    def memory_held_for(self) -> Mapping[int, tuple[Holder, ...]]:
        """What each device's memory is held for at its peak."""
        return held_for(self)

    @cached_property
    def held_memory(self) -> tuple[HeldMemory, ...]:
        """What holds the memory of each device at its peak."""
        return held_memory(self)

    @cached_property
    def allocated_at_steps(self) -> tuple[int, ...]:
        """Bytes, of the device of `kernel_uses`."""
        return allocated_at_steps(self.profile, self.steps, self.kernel_uses.device)

    @cached_property
    def rooflines(self) -> tuple[OperatorPosition, ...]:
        return operator_positions(self.profile, self.work, self.launching, self.ceilings)

    @cached_property
    def ncu_kernels(self) -> tuple[NcuKernel, ...]:
        return ncu_kernels(self.profile)

    @cached_property
    def kernel_stalls(self) -> Mapping[str, KernelStalls]:
        """Where the warps of kernels wait, by the names of kernels."""
        return kernel_stalls(self.profile)

    @cached_property
    def not_measured(self) -> Mapping[str, str]:
        """Facts to why they are not known; also what the profile itself names."""
        found = dict(self.profile.header.not_measured)
        on_device = any(self.profile.rows(table) for table in ON_DEVICE)
        for fact, tables in FACTS.items():
            missing = [table for table in tables if self._lacks(table)]
            if missing:
                why = found.get(missing[0], f"the profile has no {missing[0]}")
                found.setdefault(fact, why)
            elif not on_device and fact not in WITHOUT_DEVICE:
                found.setdefault(fact, "nothing that ran on a device was recorded")
        return found

    def _lacks(self, name: str) -> bool:
        table, _, column = name.partition(".")
        return not self.profile.rows(table) or (
            bool(column) and name in self.profile.header.not_measured
        )
