"""Whether the runs of a gate's pairs take turns, or one follows the other.

In turns, both processes are alive at the same time, and a block of steps of the one has a block of
the other beside it: what else uses the machine slows down both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.gate import GateRun
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.tuners.gate.comparing import RunBoth
from gpuadvisor.tuners.gate.metric import measured
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.gate.runs import OF_GPU, Runs

STARTUP, ENERGY = "startup", "energy"
"""Names of metrics that only runs have which are alone on the machine."""
DIFFER = 0.01
"""Ratio of two runs of the base, less one, from which a GPU's runs take turns. On a quiet GPU they
differ by 0.2 to 0.8 %, and a handful of pairs decides; and what a version costs by drawing more
power, in turns both versions pay."""
CONTEXT_BYTES = 1 << 30
"""Memory that CUDA and its libraries take of a GPU for each process, beside what torch allocates:
0.4 to 0.8 GiB on an H200."""
ROOM = 0.9
"""Part of the memory that both versions may take together."""


class InTurns:
    """Decides it once, before the first pair."""

    def __init__(
        self,
        options: GateOptions,
        device: Device,
        runs: Runs,
        folders: tuple[str, str],
        first: Mapping[str, GateRun],
        run_both: RunBoth,
    ) -> None:
        """`folders` are those in which both versions run, `first` their first runs."""
        self._options, self._device, self._runs = options, device, runs
        self._folders, self._first, self._run_both = folders, first, run_both
        self._taken: bool | None = None
        """None before the first pair."""
        self.told = ""
        """What the user should know of it; empty for nothing."""

    @property
    def were_taken(self) -> bool:
        return bool(self._taken)

    def give_up(self, why: str) -> None:
        """Have all further pairs run one after the other."""
        self._taken = False
        self.told = f"pairs were run one after the other: {why}"

    def both(self) -> RunBoth | None:
        """Return what runs both versions in turns; None where they follow one another."""
        if self._taken is None:
            self._decide()
        return self._run_both if self._taken else None

    def disturbs(self, run: GateRun) -> str:
        """Return what disturbed a run so that its pair is to be run again; empty where nothing.

        What takes CPU time takes it from both versions, where these take turns.
        """
        found = run.trial.disturbance
        return "" if run.blocks_ms and OF_GPU not in found else found

    def _decide(self) -> None:
        why = next(self._reasons(), None)
        if why is None:
            self._taken = True
            self._runs.progress.on_message(
                "both processes of a pair are alive from here on, and work in turns"
            )
            self.told = (
                "the runs of a pair took turns, in blocks of a tenth of a second, so that what "
                "else used the machine slowed down both"
            )
        elif why:
            self.give_up(why)
        else:
            self._taken = False

    def _reasons(self) -> Iterator[str]:
        """Yield why runs follow one another, each a clause; empty where there is nothing to say."""
        options = self._options
        if not options.in_turns:
            yield ""
        if alone := {STARTUP, ENERGY} & {*options.metrics, *options.only}:
            yield f"of two that live at the same time nobody knows the {min(alone)}"
        if self._device.is_gpu and not self._base_differs():
            yield ""
        if self._folders[0] == self._folders[1]:
            yield "in one folder each would find what the other one writes"
        if any(loader.num_workers for m in self._measured() for loader in m.facts.loaders):
            yield "its loaders' workers would read ahead while it waits for its turn"
        if self._runs.counts_pairs:
            yield "what its runs count differs, so that each of them is counted"
        if problem := self._lacks_room():
            yield problem

    def _measured(self) -> list[Measurement]:
        return [m for run in self._first.values() if (m := measured(run)) is not None]

    def _base_differs(self) -> bool:
        """Say whether runs of the base, which were made before the pairs, are seen to differ."""
        known = [run for run in self._runs.all if run.place == "known"]
        times = [m.mean_step_ms for run in known if (m := measured(run)) is not None]
        return len(times) > 1 and math.log(max(times) / min(times)) > DIFFER

    def _lacks_room(self) -> str:
        """Return why both versions do not fit into memory together; empty where they do."""
        needed = sum(m.reserved_memory_bytes for m in self._measured())
        if self._device.is_gpu:
            room, needed = self._device.memory_bytes, needed + 2 * CONTEXT_BYTES
        else:
            import psutil

            room = psutil.virtual_memory().available
        if room is None or needed <= ROOM * room:
            return ""
        gib = needed / 2**30, room / 2**30
        return f"both together need {gib[0]:.1f} of {gib[1]:.1f} GiB of memory"
