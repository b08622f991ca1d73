"""What a check says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    """Something is missing or makes figures worse, but tuning works."""
    PROBLEM = "problem"
    """Tuning cannot work."""


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    """A few words, the same on every machine; with a number where there are several devices."""
    state: State
    detail: str
    """What was found."""
    fix: str = ""
    """One line that cures it; empty where nothing is to be done."""


def from_sentence(name: str, state: State, sentence: str) -> Check:
    """Make a check of a sentence of the form `fault: way out`, or of a fault alone."""
    fault, colon, way_out = sentence.removesuffix(".").rpartition(": ")
    return Check(name, state, fault, way_out) if colon else Check(name, state, sentence)
