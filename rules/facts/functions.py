"""What the functions of a project take of each step, on the thread that makes the steps.

Every moment of a step belongs to the innermost function of the project that is running, with what
that calls of torch, of packages and of Python itself, so that all of them add up to the step. They
are known where Python functions are among the ranges (`with_stack=True`); without, operators are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN, Profile, Range
from gpuadvisor.rules.facts.intervals import FloatArray, IntArray, ends
from gpuadvisor.rules.facts.joins import call_tree

_FRAME = re.compile(r"(?P<file>.+\.py)\((?P<line>\d+)\): (?P<name>.+)")
"""PyTorch's way to write a frame: `train.py(12): main`, with the line where the function begins;
of one that runs already when the recording begins, with the line where it is."""
_BUILT_IN = re.compile(r"<built-in (?:function|method) (?P<name>\w+)(?: of (?P<of>\S+) object)?.*>")
_MODULE = re.compile(r"nn\.Module: (?P<name>.+)_\d+")
_SITE = re.compile(r".*/(?:site-packages|dist-packages|lib/python\d[\d.]*)/")
_OURS = "gpuadvisor/collectors/script/child/"


@dataclass(frozen=True, order=True)
class Function:
    """A function of the project; without a file what runs while none of them does."""

    file: str = ""
    """From the top of the project's folder."""
    name: str = ""
    line: int = 0
    """Number of the line where the function begins; 0 where the recording does not tell."""


@dataclass(frozen=True, eq=False)
class FunctionPart:
    """What a function takes in what it calls outside of the project under one name."""

    step_ns: FloatArray
    """Time in each step."""
    count: float
    """Calls in a mean step; with an empty name those of the function itself."""


@dataclass(frozen=True, eq=False)
class FunctionTimes:
    """The time of each step by function, and in it by what the function calls."""

    step_ns: FloatArray
    """Duration of each step."""
    parts: Mapping[Function, Mapping[str, FunctionPart]]
    """The parts of each function by the name of what is called: an operator, `time.sleep`. An empty
    name stands for the function's own Python."""


def function_times(profile: Profile, own: Callable[[str], str | None]) -> FunctionTimes:
    """Return the time of the project's functions; without a step where the profile marks none.

    `own` returns the path in the project of a file as a frame names it, None for any other file.
    """
    ranges = profile.columns("ranges")
    marked = np.flatnonzero(ranges["kind"] == Range.STEP)
    if not len(marked):
        return FunctionTimes(np.zeros(0), {})
    thread = int(ranges["process"][marked[0]]), int(ranges["thread"][marked[0]])
    marked = marked[np.argsort(ranges["begin_ns"][marked], kind="stable")]
    begin, end = ends(ranges["begin_ns"][marked], ranges["duration_ns"][marked])
    rows = _Rows(profile, *thread)
    group, heads, keys = _grouped(rows, _names(profile, rows, own, int(begin[0])))
    times = np.array(
        [np.bincount(group, rows.own_ns(*step), len(keys)) for step in zip(begin, end, strict=True)]
    )
    times[:, 0] += (end - begin) - times.sum(axis=1)  # what no row covers
    within = heads[(rows.begin[heads] >= begin[0]) & (rows.begin[heads] < end[-1])]
    counts = np.bincount(group[within], minlength=len(keys)) / len(begin)
    parts: dict[Function, dict[str, FunctionPart]] = {}
    for number, (function, name) in enumerate(keys):
        part = FunctionPart(times[:, number], float(counts[number]))
        parts.setdefault(function, {})[name] = part
    return FunctionTimes((end - begin).astype(np.float64), parts)


def built_in_within(
    profile: Profile, threads: IntArray, begin_ns: int, end_ns: int
) -> tuple[str, float] | None:
    """Return the function that is not written in Python in which some threads (process and thread
    of each) were longest between two times, as people call it, and for which share of that (0 to
    1); None where none was recorded. It says what a script waits for, or for what it asks."""
    ranges = profile.columns("ranges")
    rows = np.flatnonzero(
        (ranges["kind"] == Range.PYTHON)
        & (ranges["begin_ns"] < end_ns)
        & (ranges["begin_ns"] + ranges["duration_ns"] > begin_ns)
    )
    named = {
        text: _called(profile.header.texts[text])
        for text in np.unique(ranges["name"][rows]).tolist()
        if _BUILT_IN.fullmatch(profile.header.texts[text])
    }
    here = np.stack((ranges["process"][rows], ranges["thread"][rows]))
    mine = (here[:, :, None] == threads[:, None, :]).all(axis=0).any(axis=1)
    rows = rows[mine & np.isin(ranges["name"][rows], list(named))]
    if not len(rows) or end_ns <= begin_ns:
        return None
    begin, end = ends(ranges["begin_ns"][rows], ranges["duration_ns"][rows])
    lasted = np.minimum(end, end_ns) - np.maximum(begin, begin_ns)
    spent = np.bincount(ranges["name"][rows], lasted)
    most = int(spent.argmax())
    return named[most], min(float(spent[most]) / (end_ns - begin_ns), 1.0)


class _Rows:
    """The Python functions and operators of one thread."""

    def __init__(self, profile: Profile, process: int, thread: int) -> None:
        found = []
        for table in ("ranges", "operators"):
            columns = profile.columns(table)
            here = (columns["process"] == process) & (columns["thread"] == thread)
            if table == "ranges":
                here &= columns["kind"] == Range.PYTHON
            found.append([columns[each][here] for each in ("begin_ns", "duration_ns", "name")])
        begin, duration, self.name = (np.concatenate(each) for each in zip(*found, strict=True))
        self.begin, self.end = ends(begin, duration)
        self.is_operator = np.arange(len(begin)) >= len(found[0][0])
        tree = call_tree(self.begin, self.end, np.zeros(len(begin), np.int64))
        self.order = tree.row
        """Rows so that what holds another comes before it."""
        self.holder = np.full(len(begin), UNKNOWN, np.int64)
        held = tree.parent != UNKNOWN
        self.holder[tree.row[held]] = tree.row[tree.parent[held]]

    def own_ns(self, begin_ns: int, end_ns: int) -> IntArray:
        """Return each row's time between two points, without that of the rows which it holds."""
        lasts: IntArray = np.minimum(self.end, end_ns) - np.maximum(self.begin, begin_ns)
        lasts = np.maximum(lasts, 0)
        own = lasts.copy()
        held = self.holder != UNKNOWN
        np.subtract.at(own, self.holder[held], lasts[held])
        return np.maximum(own, 0)


def _names(
    profile: Profile, rows: _Rows, own: Callable[[str], str | None], first_ns: int
) -> list[Function | str]:
    """Return for each row the function that it is, or the name of what is not the project's."""
    texts = profile.header.texts
    of_text: dict[int, Function | str] = {}
    for text in np.unique(rows.name).tolist():
        frame = _FRAME.fullmatch(texts[text])
        file = own(frame["file"]) if frame else None
        if frame and file is not None:
            of_text[text] = Function(file, frame["name"], int(frame["line"]))
        else:
            of_text[text] = _called(texts[text])
    began = [of_text[text] for text in np.unique(rows.name[rows.begin >= first_ns]).tolist()]
    known = sorted(each for each in began if isinstance(each, Function))
    found = [of_text[text] for text in rows.name.tolist()]
    for row in np.flatnonzero((rows.begin < first_ns) & ~rows.is_operator).tolist():
        if isinstance(running := found[row], Function):
            found[row] = _beginning(running, known)
    return found


def _beginning(running: Function, known: list[Function]) -> Function:
    """Return a function that was running with the line where it begins, if that is known."""
    named = (running.file, running.name)
    above = [e for e in known if (e.file, e.name) == named and 0 < e.line <= running.line]
    return above[-1] if above else Function(*named)


def _called(text: str) -> str:
    """Return how people call what is not the project's: `Tensor.item`, `torch/nn/x.py: forward`."""
    if frame := _FRAME.fullmatch(text):
        return f"{_SITE.sub('', frame['file'])}: {frame['name']}"
    if built_in := _BUILT_IN.fullmatch(text):
        of = (built_in["of"] or "").rpartition(".")[2]
        return f"{of}.{built_in['name']}" if of not in ("", "type", "module") else built_in["name"]
    module = _MODULE.fullmatch(text)
    return module["name"] if module else text


def _grouped(
    rows: _Rows, names: list[Function | str]
) -> tuple[IntArray, IntArray, list[tuple[Function, str]]]:
    """Return each row's group, the rows that begin one, and each group's function and call.

    What a function calls goes by its outermost operator, or where there is none by the outermost
    thing. The first group is what no function of the project does, in Python.
    """
    groups: dict[tuple[Function, str], int] = {(Function(), ""): 0}
    keys = list(groups)
    group = np.zeros(len(names), np.int64)
    by_operator, heads = rows.is_operator.copy(), []
    for row, holder in zip(rows.order.tolist(), rows.holder[rows.order].tolist(), strict=True):
        name = names[row]
        if isinstance(name, Function):
            key = (name, "")
        else:
            function, call = keys[group[holder]] if holder != UNKNOWN else (Function(), "")
            inside = holder != UNKNOWN and bool(by_operator[holder]) and call != ""
            if inside or _OURS in name or (call and not by_operator[row]):
                group[row] = groups[function, call]
                by_operator[row] = inside
                continue
            key = (function, name)
        if key not in groups:
            groups[key] = len(keys)
            keys.append(key)
        group[row] = groups[key]
        heads.append(row)
    return group, np.array(heads, np.int64), keys
