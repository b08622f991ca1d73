"""Whether the runs of a gate's pairs take turns, or one follows the other.

In turns, both processes are alive at the same time, and a block of steps of the one has a block of
the other beside it: what else uses the machine slows down both. Where the sides are plans of one
script, each process can be either of them: then they take turns within it, after it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.gate import GateRun
from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Objective
from gpuadvisor.tuners.gate.comparing import RunBoth
from gpuadvisor.tuners.gate.metric import measured
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.gate.lengths import SHORT_S
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.gate.runs import OF_GPU, Runs
from gpuadvisor.tuning.trials.in_turns import READS_AHEAD, TOOK_TURNS, have_workers, lacks_room
from gpuadvisor.tuning.turning import turning_of, unable_to_turn

STARTUP, ENERGY = "startup", "energy"
"""Names of metrics that only runs have which are alone on the machine."""
DIFFER = 0.01
"""Ratio of two runs of the base, less one, from which a GPU's runs take turns. On a quiet GPU they
differ by 0.2 to 0.8 %, and a handful of pairs decides; and what a version costs by drawing more
power, in turns both versions pay."""


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
        plans: tuple[Settings, Settings] | None = None,
    ) -> None:
        """`folders` are those in which both versions run, `first` their first runs, and `plans`
        their settings where they differ in nothing else."""
        self._options, self._device, self._runs = options, device, runs
        self._folders, self._first, self._run_both = folders, first, run_both
        self._plans = plans
        self._taken: bool | None = None
        """None before the first pair."""
        self._said = ""

    @property
    def told(self) -> str:
        """What the user should know of it; empty for nothing."""
        if self._plans is None or self._runs.turning is not None or self._said:
            return self._said
        return self._runs.turned_nothing

    @property
    def were_taken(self) -> bool:
        return bool(self._taken)

    def give_up(self, why: str) -> None:
        """Have all further pairs run one after the other."""
        self._taken = False
        self._said = f"pairs were run one after the other: {why}"

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
        if self._plans is not None:
            self._taken = False
            self._decide_within(*self._plans)
            return
        why = next(self._reasons(), None)
        if why is None:
            self._taken = True
            self._runs.progress.on_message(
                "both processes of a pair are alive from here on, and work in turns"
            )
            self._said = TOOK_TURNS
        elif why:
            self.give_up(why)
        else:
            self._taken = False

    def _decide_within(self, base: Settings, head: Settings) -> None:
        """Have the processes of pairs time both sides in turns, where that tells more and can be.

        On a quiet machine it lengthens runs, and three or four pairs are enough without.
        """
        knobs, known = load_knobs(), self._known()
        if not (self._options.in_turns and self._base_differs()):
            return
        if why := unable_to_turn(head, knobs, Objective.THROUGHPUT, base):
            self._said = f"each process timed one side only: {why}"
        elif not self._runs.counts_pairs:
            step_s = median(run.mean_step_ms for run in known) / 1e3
            run_s = median(run.wall_s for run in known)
            self._runs.turning = turning_of(head, knobs, SHORT_S, step_s, run_s, base)
            self._runs.progress.on_message(
                "runs differ from start to start: each process of a pair is measured as it has "
                "started, and then times both sides in turns"
            )

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
        if have_workers(self._measured()):
            yield READS_AHEAD
        if self._runs.counts_pairs:
            yield "what its runs count differs, so that each of them is counted"
        if problem := lacks_room(self._measured(), self._device):
            yield problem

    def _measured(self) -> list[Measurement]:
        return [m for run in self._first.values() if (m := measured(run)) is not None]

    def _base_differs(self) -> bool:
        """Say whether runs of the base, which were made before the pairs, are seen to differ."""
        times = [run.mean_step_ms for run in self._known()]
        return len(times) > 1 and math.log(max(times) / min(times)) > DIFFER

    def _known(self) -> list[Measurement]:
        known = [run for run in self._runs.all if run.place == "known"]
        return [m for run in known if (m := measured(run)) is not None]
