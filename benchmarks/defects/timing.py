"""What a cure saves: the program and its cured form in turns, in a process each."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

from turns import BUSY

ROUND_S = 0.12
"""Of each form in a round."""
FEWEST_ROUNDS, MOST_ROUNDS = 5, 12
PRECISE_POINTS = 0.5
"""Half of the interval's width, in points of percent, from which on no more rounds are needed."""
PRECISE_SHARE = 0.02
"""The same as a share of the gain: what is 60 % need not be known to half a point. [own]"""
CONFIDENCE = 0.95
LONGEST_S = 90.0
"""Of both forms, from their start to their last round, compilers included."""


living: set[Form] = set()
"""All forms that have not ended."""


class FailedError(Exception):
    """Why nothing could be measured: a sentence."""


@dataclass(frozen=True)
class Gain:
    """By how many percent of its time a step gets shorter with the cure, and what it took."""

    value: float
    low: float
    high: float
    planted_ms: float
    cured_ms: float
    rounds: int
    cured_busy_ms: float | None = None
    """For how much of that some kernel or copy runs, where it was recorded: what the rest is of a
    step costs the program besides the defect."""

    @classmethod
    def of(cls, planted_ms: Sequence[float], cured_ms: Sequence[float]) -> Gain:
        """Return it with its interval, of one pair of times a round."""
        from scipy.special import stdtrit

        ratios = [
            math.log(cured / planted) for planted, cured in zip(planted_ms, cured_ms, strict=True)
        ]
        middle, count = mean(ratios), len(ratios)
        error = stdev(ratios) / math.sqrt(count) if count > 1 else math.inf
        half = error * float(stdtrit(max(count - 1, 1), (1 + CONFIDENCE) / 2))
        value, low, high = (
            100 * (1 - math.exp(min(each, 20.0))) for each in (middle, middle + half, middle - half)
        )
        return cls(value, low, high, _middle(planted_ms), _middle(cured_ms), count)

    @property
    def is_precise(self) -> bool:
        return self.high - self.low <= 2 * max(PRECISE_POINTS, PRECISE_SHARE * abs(self.value))


def _middle(times_ms: Sequence[float]) -> float:
    return math.exp(mean(map(math.log, times_ms)))


def in_turns(
    words: Sequence[str],
    turn: Callable[[], AbstractContextManager[float]],
    *,
    alone: bool = False,
) -> tuple[Gain, dict[str, Any], dict[str, float]]:
    """Return what the cure of `program.py` with these words saves, on what it ran, and for how
    many seconds it started, waited for its turn, warmed up and was timed.

    Both forms start at once, and compute only within `turn`: by turns, or `alone`, where what is
    slow is slower beside another process that has the GPU: the second one when the first one has
    ended. FailedError where one of them ends.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        forms = [
            stack.enter_context(Form([*words, *more, "--serve"])) for more in ((), ("--cured",))
        ]
        for each in forms:
            each.told()
        parts = {"started": time.monotonic() - began}
        with turn() as parts["waited"], watched(forms):
            began = time.monotonic()
            if alone:
                found, times, ready = zip(*map(_timed_alone, forms), strict=True)
                gain = replace(Gain.of(*times), cured_busy_ms=found[1]["busy_ms"])
                spent = time.monotonic() - began
                parts |= {"warmed": sum(ready), "rounds": spent - sum(ready)}
            else:
                for each in forms:
                    each.say("go")
                found = tuple(each.told() for each in forms)
                warm = time.monotonic()
                gain = _compared(*forms)
                parts |= {"warmed": warm - began, "rounds": time.monotonic() - warm}
                gain = replace(gain, cured_busy_ms=forms[1].busy_ms())
    return gain, {**found[1], "peak_bytes": [each.get("peak_bytes") for each in found]}, parts


def _timed_alone(form: Form) -> tuple[Any, list[float], float]:
    """Return on what a form ran, the time of a step in each of as many rounds as there are at most,
    and for how many seconds it warmed up; it has ended then."""
    began = time.monotonic()
    form.say("go")
    ran_on, ready, found = form.told(), time.monotonic() - began, []
    for _ in range(MOST_ROUNDS):
        form.say(str(ROUND_S))
        found.append(float(form.told()))
    ran_on["busy_ms"] = form.busy_ms()
    form.end()
    return ran_on, found, ready


def _compared(planted: Form, cured: Form) -> Gain:
    times: tuple[list[float], list[float]] = ([], [])
    while True:
        for form, found in zip((planted, cured), times, strict=True):
            form.say(str(ROUND_S))
            found.append(float(form.told()))
        if len(times[0]) < FEWEST_ROUNDS:
            continue
        gain = Gain.of(*times)
        if gain.is_precise or gain.rounds == MOST_ROUNDS:
            return gain


class Form:
    """A program in a process of its own, that takes steps when it is told to."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._process = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._complaints: list[str] = []
        living.add(self)
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Form:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End it, if it lives, and wait until it has ended."""
        if self in living:
            self.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(BrokenPipeError):  # what it was told last, and never read
                    assert pipe is not None
                    pipe.close()
            living.discard(self)

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with suppress(ValueError), self._process.stderr:
            for line in self._process.stderr:
                self._complaints = [*self._complaints[-20:], line.strip()]

    def kill(self) -> None:
        """End it, and the workers that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `told` says why
            self._process.stdin.write(f"{text}\n")
            self._process.stdin.flush()

    def busy_ms(self) -> float | None:
        """Ask it for how many milliseconds of a step the GPU works; None without one."""
        self.say(BUSY)
        told: float | None = self.told()
        return told

    def told(self) -> Any:
        """Return what it says next; FailedError where it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            why = f"{' '.join(self.words[1:])} ended with {self._process.wait()}"
            raise FailedError(": ".join([why, *self._complaints[-1:]]))
        return json.loads(line)


@contextmanager
def watched(forms: Sequence[Form]) -> Iterator[None]:
    """End forms that take too long, so that what waits for their word sees them end."""

    def end() -> None:
        for each in forms:
            each.kill()

    timer = threading.Timer(LONGEST_S, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
