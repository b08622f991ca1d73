"""Whether the same files are written, with the same in them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import eq
from pathlib import PurePath

from gpuadvisor.domain.rehearsal import Life, Numbers, WrittenFile
from gpuadvisor.domain.study import Aspect
from gpuadvisor.tuners.equivalence import ERRATIC, SPREAD_FACTOR, relative_difference
from gpuadvisor.tuners.rehearsal.lives import Findings

FILE_SHARE = 0.05
"""Part by which the size of a written file may differ: numbers in a text have more or fewer
digits."""
NAMES_SHARE = 0.05
"""Part of the files of one kind whose names may be others: a figure in a name, such as an accuracy,
has another last digit."""
FEW = 16
"""Values below which a part of a file is a figure, such as a metric, and not a list of outputs: one
sample of a hundred on the other side of a threshold moves it by more than rounding does."""

TELLING_DIGITS = 3
"""Digits after the first, over the numbers of a column that are not the one before, in which two
runs agree that did not measure them: two times agree in each such digit at one run of ten."""
TELLING_TURNS = 16
"""Turns up or down in which two runs agree that did not measure a column of one digit: two times
near a rounding limit agree in each turn at one run of two at best, so in all at one of 60,000."""
LONGEST_PERIOD, REPEATED = 16, 0.75
"""Places after which times may come again, as where each worker in turn keeps the script waiting,
and the part of the places at which they then do. Two classes that are equally frequent are the same
at half of any two places."""

SAMPLES_TURNED = 1.5
"""Samples that rounding may move to the other side of a threshold where outputs agree in all their
digits, with room for a share that is printed with few: two are not rounding."""
LEAST_DRAWN = 8
"""Values from which on other draws of a model are told from what is wrong: of eight that differ by
chance alone, the distance is three times that of another eight in one case of 300 (F test)."""

_CACHES = frozenset({"__pycache__", ".nv", ".triton", ".git", ".ipynb_checkpoints"})
_UNREADABLE = "its format is none that can be compared"

Sides = tuple[WrittenFile, ...]
"""A file of the first, the second and the plan's life, and then of those that were nudged."""


@dataclass(frozen=True)
class Difference:
    """What differs in a plan's life."""

    sentence: str
    is_wrong: bool
    """Whether outputs differ by more than the limit; else it cannot be told what it means."""


@dataclass(frozen=True)
class Limits:
    """What is allowed to differ in what a plan's life writes and prints."""

    relative: float
    """Relative difference."""
    share: float
    """Difference of two shares of samples that are near 1, as accuracies: of 0.999, what is left to
    1 is the figure. Infinite where training amplifies rounding."""

    def is_another_share(self, ours: float, theirs: float) -> bool:
        """Say whether two shares of samples differ by more than rounding makes of them."""
        near_one = min(ours, theirs) > 0.5 and max(ours, theirs) <= 1
        return near_one and abs(ours - theirs) > self.share


def compare_files(found: Findings) -> None:
    """Compare the names, numbers and sizes of the files that the lives wrote, and say of which the
    content was not compared. See `contents_apart` for those that were."""
    lives = found.lives
    first, second, plan = (_sizes(each) for each in (lives.first, lives.second, lives.plan))
    if found.cut or first is None or second is None or plan is None:
        found.not_covered[Aspect.FILES] = found.cut or "what the lives wrote is not known"
        return
    unread = _unread(found)
    if unread is None:
        found.covered.append(Aspect.FILES)
    else:
        found.not_covered[Aspect.FILES] = unread
    _names(found)
    _deleted(found)
    for name, files in first.items():
        if len(second.get(name, ())) != len(files):
            continue
        theirs, size = plan.get(name, []), sum(files)
        if not theirs:
            found.problem(Aspect.FILES, f"{name} is not written")
        elif len(theirs) != len(files):
            found.problem(
                Aspect.FILES, f"{len(theirs):,} files {name} are written and not {len(files):,}"
            )
        elif sum(second[name]) == size and abs(sum(theirs) - size) > FILE_SHARE * size:
            found.problem(Aspect.FILES, f"{name} has {sum(theirs):,} bytes and not {size:,}")


def _names(found: Findings) -> None:
    """Compare the names of files that have numbers in them, where unchanged lives agree in them."""
    lives = found.lives
    first, second, plan = (_by_usual_name(each) for each in (lives.first, lives.second, lives.plan))
    for usual, files in first.items():
        known = {name for name, _ in files}
        theirs = {name for name, _ in plan.get(usual, [])}
        if known != {name for name, _ in second.get(usual, [])} or len(known) != len(theirs):
            continue
        if len(known - theirs) > NAMES_SHARE * len(known):
            found.problem(Aspect.FILES, f"{min(known - theirs)} is not written")


def _deleted(found: Findings) -> None:
    """Compare which of the user's files were deleted, where unchanged lives agree in that."""
    lives = found.lives
    first, second, plan = (
        {name for name, file in (life.written or {}).items() if file.size < 0}
        for life in (lives.first, lives.second, lives.plan)
    )
    if first == second and first != plan:
        name = min(first ^ plan)
        what = "is deleted, which the unchanged script keeps" if name in plan else "is not deleted"
        found.problem(Aspect.FILES, f"{name} {what}")


def _unread(found: Findings) -> str | None:
    """Return why what is in the files was not compared; None where it was."""
    lives = found.lives
    sides = _sides(lives.first, lives.second, lives.numerics or lives.plan)
    for name, (ours, again, theirs) in sides:
        if ours.digest and ours.digest == theirs.digest:
            continue
        if found.is_redrawn and not found.is_one_by_one:
            return f"what is in {name} depends on random numbers: only sizes were compared"
        if ours.numbers is None or theirs.numbers is None:
            return f"{name} is not the same, and {_UNREADABLE}"
        if not _is_compared(ours.numbers, again.numbers or {}, theirs.numbers):
            return f"nothing in {name} was compared: it tells times, or what differs in each run"
    return None


def _is_compared(
    ours: Mapping[str, Numbers], again: Mapping[str, Numbers], theirs: Mapping[str, Numbers]
) -> bool:
    """Say whether a file holds anything that two unchanged lives agree in; an empty one does."""
    parts = [key for key in ours if key != "words"] or list(ours)
    return not parts or any(
        key in again
        and _are_known(ours[key], again[key])
        and not _is_paced(ours[key], theirs.get(key))
        and _distance(ours[key].values, again[key].values, ours[key].are_texts) <= ERRATIC
        for key in parts
    )


def _are_known(ours: Numbers, again: Numbers) -> bool:
    """Say whether the plan's numbers can be held against those of two unchanged lives."""
    if ours.count != again.count:
        return False
    if not ours.may_be_times:
        return True
    if ours.are_texts:
        return ours.values == again.values and are_many(ours.values)
    return are_results(ours.values, again.values)


def _is_paced(ours: Numbers, theirs: Numbers | None) -> bool:
    """Say whether times or batches may decide how many there are: of lines that tell progress."""
    return ours.may_be_times and (theirs is None or theirs.count != ours.count)


def are_many(moments: Sequence[object]) -> bool:
    """Say whether moments in which two lives agree are more than those of a clock: the lives may
    have begun in the same minute, or on the same day."""
    return sum(before != after for before, after in pairwise(moments)) >= TELLING_DIGITS


def are_results(ours: Sequence[float], again: Sequence[float]) -> bool:
    """Say whether two lives did not measure these numbers, though their line speaks of time.

    They agree in all of them, and in more digits than two times do, or turn as often up and down.
    """
    if list(ours) != list(again):
        return False
    if turn_at_random(ours):
        return True
    told, before = 0, None
    for value in ours:
        if value != before and math.isfinite(value):
            digits = f"{abs(value):.15g}".partition("e")[0].replace(".", "").strip("0")
            told += max(0, len(digits) - 1)
            if told >= TELLING_DIGITS:
                return True
        before = value
    return False


def turn_at_random(values: Sequence[float]) -> bool:
    """Say whether numbers go up and down too often to be counted or to be steady times, and
    without a period, as those of workers that take turns have one."""
    steps = [after - before for before, after in pairwise(values) if after != before]
    turns = sum((before > 0) != (after > 0) for before, after in pairwise(steps))
    if turns < TELLING_TURNS:
        return False
    repeated = (sum(map(eq, values, values[n:])) for n in range(1, LONGEST_PERIOD + 1))
    return all(count < REPEATED * (len(values) - n) for n, count in enumerate(repeated, start=1))


def contents_apart(
    found: Findings, plan: Life, limits: Limits, nudged: Sequence[Life] = ()
) -> Difference | None:
    """Return the first difference in what files hold, where the unchanged lives agree in it.

    Training amplifies rounding, and `nudged` lives show by how much. None where nothing differs by
    more.
    """
    trained = bool(found.lives.first.losses)
    unknown = None
    for name, sides in _sides(found.lives.first, found.lives.second, plan, *nudged):
        ours, again, theirs = sides[:3]
        if ours.digest and ours.digest == theirs.digest:
            continue
        if all(file.numbers is not None for file in sides[:3]):
            least = LEAST_DRAWN if found.model_redraws else 0
            difference = _difference(name, sides, trained, limits, least)
            if difference is not None:
                return difference
        elif not trained and (ours.digest == again.digest or found.is_resized or found.rounding):
            sentence = f"{name} is not the same, and {_UNREADABLE}"
            unknown = unknown or Difference(sentence, False)
    return unknown


def _difference(
    name: str, sides: Sides, trained: bool, limits: Limits, least: int
) -> Difference | None:
    """Return what differs in a file whose numbers are known, of parts with at least so many."""
    ours, again, theirs, *nudged = (file.numbers or {} for file in sides)
    # A log of training has other lines at times, and draws may say how much is written.
    is_output = not (trained and sides[0].is_text) and not least
    together: list[list[float]] = [[] for _ in sides]
    for key, part in ours.items():
        if key not in again or not _are_known(part, again[key]):
            continue
        if _is_paced(part, theirs.get(key)) or (sides[0].is_text and part.count < least):
            continue
        others = [each.get(key, part) for each in nudged]
        if least and any(each.count != part.count for each in others):
            continue  # as many as the draws make them
        label = f"{name} ({key})" if key else name
        if key not in theirs:
            return Difference(f"{label} is not written", is_output)
        if theirs[key].count != part.count:
            sentence = f"{label} has {theirs[key].count:,} values and not {part.count:,}"
            return Difference(sentence, is_output)
        others = [each if each.count == part.count else part for each in others]
        values = [each.values for each in (part, again[key], theirs[key], *others)]
        if not _finite_alike(values[0], values[2]):
            return Difference(f"{label} has NaN or infinity", True)
        if trained and not (sides[0].is_text or part.are_texts):
            # A small part, such as a bias, moves most.
            for kept, more in zip(together, values, strict=True):
                kept.extend(more)
            continue
        is_few = part.count < FEW
        apart = _beyond(values, limits.relative, part.are_texts)
        if apart is None and is_few and any(map(limits.is_another_share, values[0], values[2])):
            apart = _distance(values[0], values[2])
        if apart is not None:
            return _differing(label, apart, is_wrong=not trained and not is_few)
        is_figure = not (trained or part.are_texts)
        if is_figure and (part_differs := _whole_numbers_apart(values)) > limits.relative:
            sentence = f"{label}: {part_differs:.1%} of its whole numbers are not the same"
            return Difference(sentence, False)  # counts are exact, brightnesses are not
    apart = _beyond(together, limits.relative) if len(together[0]) >= least else None
    return None if apart is None else _differing(name, apart, is_wrong=False)


def numbers_by_part(*lives: Life) -> Iterator[tuple[str, str, list[Numbers | None]]]:
    """Yield the name of each file, that of a part of it, and its numbers in each of these lives.

    Of parts in which the first two, of the unchanged script, agree, and the third is not the same.
    None stands for one of the lives after them that has it not, or not as many numbers.
    """
    for name, sides in _sides(*lives):
        numbers = [side.numbers for side in sides]
        ours, again, theirs = numbers[:3]
        if sides[0].digest == sides[2].digest or ours is None or again is None or theirs is None:
            continue
        for key, part in ours.items():
            parts = [(each or {}).get(key) for each in numbers]
            parts = [each if each and each.count == part.count else None for each in parts]
            usual, planned = parts[1:3]
            if part.are_texts or usual is None or planned is None or usual.values != part.values:
                continue
            if _are_known(part, usual) and planned.values != part.values:
                yield name, key, parts


def _differing(label: str, apart: float, is_wrong: bool) -> Difference:
    said = f"differs by {apart:.2%}" if math.isfinite(apart) else "is 0 in the unchanged script"
    return Difference(f"{label} {said}", is_wrong)


def _finite_alike(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Say whether NaN and infinity are where the unchanged script has them, and nowhere else."""
    return all(map(math.isfinite, theirs)) or [*map(math.isfinite, ours)] == [
        *map(math.isfinite, theirs)
    ]


def _beyond(
    values: Sequence[Sequence[float]], limit: float, are_texts: bool = False
) -> float | None:
    """Return how far the plan's values are from the first life's; None where that is no more than
    the limit or nudged lives account for, or the two unchanged lives are far apart themselves.
    """
    ours, again, theirs, *nudged = values
    usual = _distance(ours, again, are_texts)
    if usual > ERRATIC:
        return None
    usual = max(usual, *(_distance(ours, each, are_texts) for each in nudged), 0.0)
    apart = _distance(ours, theirs, are_texts)
    return apart if apart > max(limit, SPREAD_FACTOR * usual) else None


def _distance(ours: Sequence[float], theirs: Sequence[float], are_texts: bool = False) -> float:
    """Return the relative L2 difference, or of whole numbers the part that differs if that is
    less: a class is either the same or another. Of texts only that part says anything."""
    if are_texts:
        return _differing_part(ours, theirs) if len(ours) == len(theirs) else math.inf
    apart = relative_difference(ours, theirs)
    if 0 < apart < math.inf and _are_whole(ours, theirs):
        return min(apart, _differing_part(ours, theirs))
    return apart


def _whole_numbers_apart(values: Sequence[Sequence[float]]) -> float:
    """Return the part of whole numbers that differs though the unchanged lives agree in them."""
    ours, again, theirs = values[:3]
    known = list(ours) == list(again) and _are_whole(ours, theirs)
    return _differing_part(ours, theirs) if known else 0.0


def _are_whole(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return all(map(float.is_integer, (*ours, *theirs)))


def _differing_part(ours: Sequence[float], theirs: Sequence[float]) -> float:
    differing = sum(a != b for a, b in zip(ours, theirs, strict=True))
    return differing / max(1, len(ours))


def _sides(*lives: Life) -> Iterator[tuple[str, Sides]]:
    """Yield the files that the first three lives wrote, by a name for each.

    Names that differ in numbers alone, such as those of times and processes, belong together. Of
    the other lives there are those that wrote as many.
    """
    wrote = [_by_usual_name(life) for life in lives]
    for usual, ours in wrote[0].items():
        files = [side.get(usual, []) for side in wrote]
        if len(ours) == len(files[1]) == len(files[2]):
            files = [each for each in files if len(each) == len(ours)]
            for together in zip(*files, strict=True):
                yield together[0][0], tuple(file for _, file in together)


def _by_usual_name(life: Life) -> dict[str, list[tuple[str, WrittenFile]]]:
    """Return what a life wrote and left, but for caches, by names without numbers."""
    files: dict[str, list[tuple[str, WrittenFile]]] = {}
    for name, file in sorted((life.written or {}).items()):
        if file.size >= 0 and not _is_cache(PurePath(name)):
            files.setdefault(re.sub(r"\d+", "#", name), []).append((name, file))
    return files


def _is_cache(path: PurePath) -> bool:
    """Say whether a file is a cache or a setting: what is hidden in the user's folders, or has the
    name of a known cache. A hidden folder of the script's own may hold its results."""
    if any(part in _CACHES or part.startswith("torchinductor") for part in path.parts):
        return True
    return path.is_absolute() and any(part.startswith(".") for part in path.parts)


def _sizes(life: Life) -> dict[str, list[int]] | None:
    """Return the sizes of what a life wrote, by names without numbers."""
    if life.written is None:
        return None
    return {
        usual: [file.size for _, file in files] for usual, files in _by_usual_name(life).items()
    }
