"""The contract of a knob: what it can be set to, what it may change, and how it is applied.

One knob is one file in `tuners/knobs/` that ends in `KNOB = ...`. The file is imported both by
gpuadvisor and by the process that runs the user's script, so it imports only the standard
library and `gpuadvisor.domain` at its top, torch inside `apply`, and runs on Python 3.10.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.inquiry import Found, Inquiry, Witness
from gpuadvisor.domain.knobs import Application, Effect, Level, ScriptFacts, Settings, Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Aspect, Objective
from gpuadvisor.domain.target import Target, Turn

Obstacle = Callable[[Device, ScriptFacts], "str | None"]
"""Returns why a knob cannot work on a device or script, in words, or None."""

COMPILING_S = 20.0
"""Time that a knob usually adds to its first start from which it compiles the model, and does so
anew for another precision, layout or size of batch: Inductor takes 40 s, cuDNN's choice of
algorithms 8 s whatever else is set."""


class Knob(ABC):
    """One thing that can be turned from outside the script."""

    name: ClassVar[str]
    """Name in a plan and in `--only`: snake case, the field's own term."""
    title: ClassVar[str]
    """A few words, for tables."""
    level: ClassVar[Level]
    effect: ClassVar[Effect]
    order: ClassVar[int]
    """Place in the search: cheap and often decisive first. Ties go by name."""
    excludes: ClassVar[frozenset[str]] = frozenset()
    """Knobs that cannot be set together with this one."""
    serves: ClassVar[frozenset[Objective]] = frozenset(Objective)
    """Objectives that it can improve."""
    progressive: ClassVar[bool] = False
    """Whether values are tried in order, each on top of the last, until one stops paying."""
    patience: int = 2
    """Values tried in vain before the others are left alone; the most promising come first."""
    plausible: ClassVar[tuple[Value, ...] | range] = (True,)
    """Values that a plan may hold, on whatever device it was made."""
    reaches: ClassVar[frozenset[Aspect]] = frozenset(
        {Aspect.SECOND_EPOCH, Aspect.RESULTS, Aspect.FILES, Aspect.END}
    )
    """Aspects of a script's life that it can change, where it does harm."""
    changes_model: ClassVar[bool] = False
    """Whether it changes what a script's own code may reach for: weights and their layout or type,
    layers, or an optimizer's state."""
    obstacles: ClassVar[tuple[Obstacle, ...]] = ()
    """What may keep it from working, the first to be told first. Those that several knobs meet are
    in `tuners/knobs/_script.py`."""
    lines: ClassVar[str]
    """Lines that have the same effect in the user's own code; `{value}` stands for the value."""
    snippet_language: ClassVar[str] = "python"
    """Language of the lines that keep it for good: `python` or `shell`."""
    extra_startup_s: ClassVar[float] = 0.0
    """Time that applying it may add before the first steady step, for the time-out."""
    first_start_s: ClassVar[float] = 0.0
    """Time that it usually adds to its first trial, for the budget."""
    risk: ClassVar[str] = ""
    """What may go wrong that no rehearsal can rule out, as a clause; empty where nothing is known.
    A knob with a risk is tried only where `--only` names it, whatever the level."""
    forkable: ClassVar[bool] = True
    """Whether a trial of it may begin in a fork of a process that has imported torch already."""
    concerns_loading: ClassVar[bool] = False
    """Whether it acts on how batches are made or moved, or on cores that the loaders' workers need:
    steps that have their batch already cannot show that it is worthless."""
    saves_gpu_time_only: ClassVar[bool] = False
    """Whether all that it can bring is less time on the GPU: where the host decides how long a step
    takes, little is to be expected of it."""
    finds: ClassVar[bool] = False
    """Whether the running script shows its value, which nobody can list: `find` asks it, and what
    that returns is tried and proven as the value of any other knob."""
    refines: ClassVar[str | None] = None
    """Name of the cheaper knob of which it is a costly form: where that one made the script slower,
    or could not run, this one is spared."""

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        """Return the values worth trying here, the most promising first.

        By default all that are plausible, where those are not a range. The value that the script
        has already is not among them.
        """
        return self.plausible if isinstance(self.plausible, tuple) else ()

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        """Return why it cannot work on this device or script, in words, or None if it can."""
        return next(filter(None, (met(device, facts) for met in self.obstacles)), None)

    def level_for(self, facts: ScriptFacts) -> Level:
        """Return the lowest level that may turn it on this script."""
        return self.level

    def effect_for(self, facts: ScriptFacts) -> Effect:
        """Return what it may do to the results of this script."""
        return self.effect

    def missing(self, settings: Settings, facts: ScriptFacts) -> str | None:
        """Return which other setting it needs and does not have, or None.

        `persistent_workers` needs workers, for example, from the script or from another knob.
        """
        return None

    def pointless(self, best: Measurement) -> str | None:
        """Return why it cannot make the best run so far any faster, or None if it might.

        It spares trials: a script that does not wait for its loaders needs no more workers.
        Asked again when the best has changed.
        """
        return None

    def relieves(self, device: Device, run: Measurement) -> Value | None:
        """Return the value without which a run wanted more of the device than there is, so that it
        may not show what its settings bring; None where it did not, or where none helps.
        """
        return None

    def problem(self, value: object) -> str | None:
        """Return why a value from a plan cannot be used, in words, or None if it can."""
        if isinstance(self.plausible, tuple):
            if any(value == v and type(value) is type(v) for v in self.plausible):
                return None
            return f"it must be {' or '.join(json.dumps(v) for v in self.plausible)}"
        low, high = self.plausible.start, self.plausible.stop - 1
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return None
        return f"it must be a whole number from {low} to {high}"

    def environment(self, value: Value) -> Mapping[str, str]:
        """Return environment variables to set before the process starts."""
        return {}

    @abstractmethod
    def apply(self, value: Value, target: Target) -> None:
        """Turn the knob, inside the target process."""

    def live(self, target: Target) -> Turn | None:
        """Return what turns it between two steps of a running script, from off.

        Called once, inside the target process, in place of `apply`. None for a knob that can only
        be set before the script starts, or builds something.
        """
        return None

    def precise(self, value: Value) -> Value | None:
        """Return a value with which the unchanged script computes in more digits what this value
        rounds otherwise, to hold both against; None for a knob without one.
        """
        return None

    def find(self, script: Witness) -> Found:
        """Ask a running script for a value; it answers with `answer_orders`.

        For a knob that `finds`. Ended means that the script is gone; it may be begun again.
        """
        raise NotImplementedError

    def answer_orders(self, inquiry: Inquiry) -> None:
        """Have the script's steps taken by what answers, inside the target process."""
        raise NotImplementedError

    def snippet(self, value: Value) -> str:
        """Return the lines that have the same effect in the user's own code."""
        return self.lines.format(value=value)

    def application(self, value: Value) -> Application:
        """Return what the target process needs to apply it."""
        return Application(self.name, f"{type(self).__module__}:KNOB", value)
