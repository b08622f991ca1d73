"""Which blocks, warps and stages the Triton kernels that a script launches should have.

The script is asked launch by launch (`gpuadvisor.tuners.knobs._triton.search` answers). What is
found is one value of a knob, which has yet to be proven: the step may not wait for these kernels.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuadvisor.domain.inquiry import Answer, Ended, Found, Witness
from gpuadvisor.domain.kernel_records import Evaluation
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.kernels.launch_points import (
    FINALISTS,
    LEAST_SHARE,
    POINT_S,
    WORTH,
    LaunchPoints,
    Shares,
    checked,
    is_imprecise,
    measured,
)
from gpuadvisor.tuners.knobs._triton.launches import GRID, NUMBERS

WORTH_IN_PLACE = 0.01
"""Gain that has to be left in the script's own steps, where caches are as they are."""
OPEN_S, COMPARE_S = 150.0, 120.0
"""Longest waits: until a launch has come again and was copied; for steps in place."""
LEAST_SLICE_S = 4.0
"""Time below which no launch is begun: a few configurations at half a second each."""
KEPT_S = 6.0
"""Time that is kept for steps in place."""
MOST_STARTS = 3
"""Starts of the script: one, and others after launches that ended it."""
MOST_ENDS = 6
"""Starts of a script after it came to its own end: it may have few steps."""
LONGEST_VALUE = 16_000
"""Characters of a plan's setting, with a little room."""


@dataclass
class _Entry:
    """Launches that are alike."""

    kernel: str
    text: str
    """The line that they are found by, without values."""
    share: float
    """Part of a step that they take, as they were timed in the script: an upper bound where the GPU
    waits for the CPU."""
    ms: float
    launches: float
    """Time and launches in a step."""
    why_not: str
    free: Sequence[str]
    tried: int = 0
    wrong: int = 0
    imprecise: int = 0
    """Tried settings of a launch that were refused, and those of them that are less precise."""
    held: Sequence[str] = ()
    """What keeps its value, as with others it computes something else."""
    values: dict[str, int] = field(default_factory=dict)
    """What it should have; empty where nothing was found."""
    note: str = ""
    """What is to be said of the results with these."""
    default_ms: float = math.nan
    best_ms: float = math.nan

    @property
    def line(self) -> str:
        return self.text + ", ".join(f"{name}: {value}" for name, value in self.values.items())

    @property
    def tries(self) -> str:
        """Say how many others were tried, and what of them was refused or could not be."""
        said = [f"{self.tried} others tried"]
        if self.wrong > self.imprecise:
            said.append(f"{self.wrong - self.imprecise} refused as they compute something else")
        if self.imprecise:
            said.append(f"{self.imprecise} refused as they are less precise")
        if self.held:
            said.append(f"{' and '.join(self.held)} held: with another it computes something else")
        if f"{GRID}: {NUMBERS}" in self.text:
            said.append("blocks that its grid counts left alone as that is given as numbers")
        return f" ({', '.join(said)})"

    @property
    def words(self) -> str:
        arguments = self.text[self.text.index("(") :].removesuffix(" -> ")
        shown = arguments if len(arguments) <= 90 else f"{arguments[:87]}..."
        return f"{self.kernel}{shown}"


@dataclass
class LaunchTuning:
    """The search over all launches of one script."""

    script: Witness
    _starts: int = 0
    _ends: int = 0
    """Starts, but for those after the script's own end; and those."""
    _entries: list[_Entry] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)
    """Line of an entry to its number in the process that runs now."""
    _sentences: list[str] = field(default_factory=list)
    _waiting: list[_Entry] = field(default_factory=list)
    """Launches that are still to be tuned, after the one that is."""

    def run(self) -> Found:
        """Search within the time that there is, and say what was found."""
        try:
            seen = self._begin()
        except Ended as ended:
            return Found(why=f"its launches could not be watched: {ended}")
        if seen["unable"]:
            return Found(why=str(seen["unable"]))
        self._name_unseen(seen)
        self._waiting = list(worth := self._worth_while())
        while self._waiting:
            rest = sum(each.share for each in self._waiting)
            entry = self._waiting.pop(0)
            slice_s = (self.script.left_s - KEPT_S) * entry.share / rest
            if slice_s < LEAST_SLICE_S:
                self._leave(entry, "there was no time for it")
                continue
            self._tune(entry, slice_s)
        return self._found([entry for entry in worth if entry.values], bool(worth))

    # -- the script --------------------------------------------------------------------------------

    def _begin(self) -> Answer:
        """Start the script, and learn what it launches."""
        self._starts += 1
        seen = self.script.begin()
        self._step_ms = seen["step_ms"]
        told = [
            self.script.ask({"do": "entry", "entry": number}, POINT_S)
            for number in range(seen["entries"])
        ]
        self._places = {each["text"]: number for number, each in enumerate(told)}
        if not self._entries:
            self._entries = [_Entry(**each) for each in told]
        return seen

    def _again(self, ended: Ended) -> bool:
        """Start a script again that ended, and return whether it runs."""
        self._places = {}
        if ended.by_itself:
            self._ends += 1
            self._starts -= 1
        if self._starts >= MOST_STARTS or self._ends > MOST_ENDS or not self.script.left_s:
            return False
        try:
            self._begin()
        except Ended:
            self._places = {}
        return bool(self._places)

    def _name_unseen(self, seen: Answer) -> None:
        for where, names in (
            ("a CUDA graph", seen["captured"]),
            ("code that torch compiled", seen["compiled"]),
        ):
            if names:
                self._sentences.append(
                    f"launches of {', '.join(names)} inside {where} were not seen: their blocks "
                    "stay as they are there"
                )
        if seen["bare"]:
            self._sentences.append(
                f"launches of {', '.join(seen['bare'])} without `kernel[grid]`, or of what was "
                "compiled of them, stay as they are"
            )

    def _worth_while(self) -> list[_Entry]:
        """Return the launches that are tuned; of others that take time, say why they are not."""
        found = []
        for entry in self._entries:
            if entry.share < LEAST_SHARE:
                continue
            if entry.why_not:
                self._leave(entry, entry.why_not)
            else:
                found.append(entry)
        for kernel in dict.fromkeys(entry.kernel for entry in self._entries):
            own = [entry for entry in self._entries if entry.kernel == kernel]
            share = sum(entry.share for entry in own)
            if share >= LEAST_SHARE and all(entry.share < LEAST_SHARE for entry in own):
                self._sentences.append(
                    f"{kernel} takes {share:.1%} of a step in {len(own)} shapes, none of which "
                    f"takes {LEAST_SHARE:.0%}: it stays as it is"
                )
        return found

    def _leave(self, entry: _Entry, why: str) -> None:
        self._sentences.append(f"{entry.kernel} ({entry.share:.1%} of a step) is left alone: {why}")

    # -- one launch --------------------------------------------------------------------------------

    def _tune(self, entry: _Entry, slice_s: float) -> None:
        """Search the best of a launch; where the script comes to its own end meanwhile, anew."""
        end_s = time.monotonic() + slice_s
        while entry.text in self._places:
            try:
                self._try(entry, end_s)
            except Ended as ended:
                entry.values = {}
                if not ended.by_itself:
                    self._leave(entry, f"the script ended as it was tried ({ended})")
                runs = self._again(ended)
                if runs and ended.by_itself and time.monotonic() < end_s:
                    continue
                if ended.by_itself:
                    self._leave(entry, f"the script has too few steps for it: {ended}")
            return
        self._leave(entry, "it was not launched again" if self._places else "no script runs")

    def _try(self, entry: _Entry, end_s: float) -> None:
        opened = self._open(entry)
        if "refused" in opened:
            self._leave(entry, opened["refused"])
            return
        reason = self._takes_too_little(entry, opened)
        if reason:
            self._close()
            self._leave(entry, reason)
            return
        points = LaunchPoints(self.script, opened, end_s, self._shares(entry))
        ranked = points.best()
        entry.tried, entry.wrong = points.tried, points.wrong
        entry.imprecise, entry.held = points.imprecise, points.held
        self._close()
        if ranked:
            self._check_again(entry, opened["fixed"], ranked, end_s)
        else:
            self._say_vain(entry)

    def _shares(self, entry: _Entry) -> Shares:
        """Return what a launch and all else take of a step by now."""
        saved = sum(e.share * (1 - e.best_ms / e.default_ms) for e in self._entries if e.values)
        waiting = sum(each.share for each in self._waiting)
        rest = 1 - entry.share - saved
        return Shares(entry.share, max(rest, waiting), waiting)

    def _takes_too_little(self, entry: _Entry, opened: Answer) -> str:
        """Time the launch by itself, and return why it is not worth the search, as a clause.

        In the script, what it was timed with has waited for the CPU, too.
        """
        if not opened["parameters"]:
            return "it has no block that is a power of two"
        own = measured(self.script, opened["fixed"], opened["parameters"])
        if own.time_ms is None:
            return f"what it has cannot be launched once more: {own.reason}"
        entry.share = min(entry.share, own.time_ms * entry.launches / self._step_ms)
        if entry.share < LEAST_SHARE:
            return f"by itself it takes {_us(own.time_ms)}, less than {LEAST_SHARE:.0%} of a step"
        return ""

    def _open(self, entry: _Entry) -> Answer:
        order = {"do": "open", "entry": self._places[entry.text]}
        return checked(self.script.ask(order, OPEN_S))

    def _close(self) -> None:
        """Let the script go on: the next order is read at the end of its step."""
        self.script.tell({"do": "close"})

    def _check_again(
        self,
        entry: _Entry,
        fixed: Mapping[str, int],
        ranked: Sequence[Mapping[str, Value]],
        end_s: float,
    ) -> None:
        """Judge and time the best once more on the arguments of another launch, and keep the
        fastest; where some are refused, those that come after them, while there is time."""
        opened = self._open(entry)
        if "refused" in opened:
            self._leave(entry, opened["refused"])
            return
        best: Evaluation | None = None
        accepted = 0
        for number, point in enumerate(ranked):
            is_late = number >= FINALISTS and time.monotonic() > end_s
            if accepted == FINALISTS or is_late:
                break
            found = measured(self.script, fixed, point)
            accepted += found.state is not TrialState.WRONG
            entry.wrong += found.state is TrialState.WRONG
            entry.imprecise += is_imprecise(found)
            if found.gain and found.gain > (best.gain or 0.0 if best else 1 + WORTH):
                best = found
        self._close()
        if best is None:
            self._say_vain(entry)
            return
        entry.values = {name: int(value) for name, value in {**best.point, **fixed}.items()}
        entry.values.update({name: int(value) for name, value in best.point.items()})
        entry.note = f"; {best.reason}" if best.reason else ""
        entry.default_ms, entry.best_ms = best.default_ms[0], best.times_ms[0]

    def _say_vain(self, entry: _Entry) -> None:
        self._sentences.append(f"{entry.words}: nothing was {WORTH:.0%} faster{entry.tries}")

    # -- all of them -------------------------------------------------------------------------------

    def _found(self, entries: list[_Entry], were_tuned: bool) -> Found:
        kept, why = self._in_place(self._that_fit(entries))
        said = tuple(self._sentences)
        if kept:
            return Found("\n".join(entry.line for entry in kept), sentences=said)
        if not were_tuned:
            share = f"{LEAST_SHARE:.0%} of a step"
            why = f"no launch of a Triton kernel that can be changed takes {share}"
        why = why or f"no other blocks, warps or stages make a kernel {WORTH:.0%} faster"
        return Found(why=why, sentences=said)

    def _that_fit(self, entries: list[_Entry]) -> list[_Entry]:
        """Return as many as a plan's setting has room for, those first that save the most."""
        saves = sorted(entries, key=lambda e: -e.share * (1 - e.best_ms / e.default_ms))
        kept: list[_Entry] = []
        for entry in saves:
            if sum(len(each.line) + 1 for each in [*kept, entry]) <= LONGEST_VALUE:
                kept.append(entry)
            else:
                self._leave(entry, "the plan has no room for more launches")
        return kept

    def _in_place(self, entries: list[_Entry]) -> tuple[list[_Entry], str]:
        """Return those that are faster in the script's own steps, too, and why others are not
        known to be, as a clause."""
        kept: list[_Entry] = []
        left = list(entries)
        while left:
            try:
                order = {"do": "compare", "value": left[0].line}
                times = self.script.ask(order, COMPARE_S)["ms"][0]
            except Ended as ended:
                if ended.by_itself and self._again(ended):
                    continue
                return kept, f"launches could not be compared in the script: {ended}"
            entry = left.pop(0)
            if self._pays_in_place(entry, times):
                kept.append(entry)
        return kept, ""

    def _pays_in_place(self, entry: _Entry, times: Sequence[float] | None) -> bool:
        settings = ", ".join(f"{name} {value}" for name, value in entry.values.items())
        if times is None:
            self._leave(entry, "it came too seldom to be compared in place")
            return False
        before, after = times
        if before < after * (1 + WORTH_IN_PLACE):
            self._leave(
                entry,
                f"with {settings} it takes {_us(entry.best_ms)} instead of "
                f"{_us(entry.default_ms)} by itself, and in the script no less than before",
            )
            return False
        varies = f"; {', '.join(entry.free)} may be anything" if entry.free else ""
        self._sentences.append(
            f"{entry.words}, {entry.share:.1%} of a step: {_us(entry.best_ms)} instead of "
            f"{_us(entry.default_ms)} by itself, {_us(after)} instead of {_us(before)} in the "
            f"script, with {settings}{entry.tries}{entry.note}{varies}"
        )
        return True


def _us(ms: float) -> str:
    return f"{1e3 * ms:.1f} us" if ms < 1 else f"{ms:.3g} ms"
