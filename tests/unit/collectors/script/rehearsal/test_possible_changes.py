"""What code changes for some samples only, found in its source without running it."""

from __future__ import annotations

import io
import json
import logging
import multiprocessing
import os
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuadvisor.collectors.script.child.rehearsal.dataset_state import state_of
from gpuadvisor.domain.rehearsal import (
    ATTRIBUTES,
    CHILDREN,
    COUNTED,
    LEFT,
    ONE_FILE,
    REPORTED,
    UNSENT,
)

torch = pytest.importorskip("torch")

BAD: list[int] = []
SCRATCH = Path("scratch.bin")
ERRORS = 0
QUIET = True


def note_globally(index: int) -> None:
    BAD.append(index)


def load(index: int) -> int:
    return index


class Data:
    """A data set with whatever attributes. The code that is looked at must never run."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Appends(Data):
    def __getitem__(self, i):
        try:
            return load(i)
        except OSError:
            self.x.append(i)
            return 0


class Counts(Data):
    def __getitem__(self, i):
        if i % 1000 == 999:
            self.x += 1
        return i


class CountsByKind(Data):
    def __getitem__(self, i):
        for kind in "ab":
            if kind in str(i):
                self.x[kind] += 1
        return i


class AsksForItsWorker(Data):
    def __getitem__(self, i):
        return self.read(i)

    def read(self, i):
        worker = torch.utils.data.get_worker_info()
        return 0 if worker is not None and i % 1000 == 999 else i


class SharesWithOthers(Data):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        return iter(range(worker.id if worker else 0, 9, worker.num_workers if worker else 1))


class KeepsWords(Data):
    def __getitem__(self, i):
        if i > 5:
            self.x["bad"].append(i)
        return i


class Relabels(Data):
    def __getitem__(self, i):
        try:
            return load(i)
        except OSError as error:
            self.x[i] = str(error)


class ThroughMethods(Data):
    def __getitems__(self, indices):
        return [self.one(i) for i in indices]

    def one(self, i):
        if i > 5:
            self.note(i)
        return i

    def note(self, i):
        self.x.add(i)


class AfterReturn(Data):
    def __iter__(self):
        for i in range(9):
            if i < 5:
                yield i
                continue
            self.x.append(i)


class AfterTry(Data):
    def __next__(self):
        try:
            return json.loads(self.line)
        except ValueError:
            pass
        self.x.append(self.line)
        return None


class AfterMatch(Data):
    def __getitem__(self, i):
        match i % 9:
            case 8:
                self.x.append(i)
        return i


class Inherits(Appends):
    pass


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Appends, []), (Appends, deque()), (Inherits, []), (Counts, 0), (Counts, torch.zeros(2)),
        (CountsByKind, Counter()), (CountsByKind, {"a": 0}), (KeepsWords, {"bad": []}),
        (Relabels, {}), (ThroughMethods, set()), (AfterReturn, []), (AfterTry, []),
        (AfterMatch, []),
    ],
)  # fmt: skip
def test_what_no_sample_may_reach(kind: type[Data], value: Any) -> None:
    found = state_of({"dataset": kind(x=value, line="")}).possible
    assert list(found) == ["dataset.x"]
    place = next(iter(found.values()))
    assert place.partition(".")[0] == ("Appends" if kind is Inherits else kind.__name__)


class UsesGlobals(Data):
    def __getitem__(self, i):
        global ERRORS
        if i > 5:
            note_globally(i)
            ERRORS += 1
        return i


def test_globals_and_what_a_function_closes_over() -> None:
    found = state_of({"dataset": UsesGlobals()}).possible
    assert found == {
        "global BAD": "note_globally",
        "global ERRORS": "UsesGlobals.__getitem__",
    }
    short: list[Any] = []

    def collate(samples: list[Any]) -> list[Any]:
        if len(samples) < 8:
            short.append(samples)
        return samples

    assert state_of({"collate_fn": collate}).possible == {"collate_fn.short": "collate"}


def test_a_data_set_in_a_library_s() -> None:
    inner = torch.utils.data.Subset(Appends(x=[]), [1, 2])
    both = torch.utils.data.ConcatDataset([inner, inner])
    assert list(state_of({"dataset": both}).possible) == ["dataset.datasets[0].dataset.x"]


class Always(Data):
    def __getitem__(self, i):
        self.x.update(level=1)  # any sample would have shown a change
        return i


class MadeOnce(Data):
    def __getitem__(self, i):
        if self.x is None:
            self.x = [load(i)]
        return self.x[0]


class MadeOnceElsewhere(Data):
    def __getitem__(self, i):
        if not hasattr(self, "x"):
            self.open()
        return self.x

    def open(self):
        self.x = []


class Cache(Data):
    def __getitem__(self, i):
        if i not in self.x:
            self.x[i] = load(i)
        return self.x[i]


class LastOne(Data):
    def __getitem__(self, i):
        if i > 5:
            self.x = i
        return i


class SwitchedOff(Data):
    keeps = False

    def __getitem__(self, i):
        if self.keeps and i > 5:
            self.x.append(i)
        if not QUIET:
            self.x.append(i)
        if self.log is not None:
            self.x.append(i)
        return i


class EndsBefore(Data):
    log = None

    def __getitem__(self, i):
        if self.log is None:
            return load(i)
        if i > 5:
            self.x.append(i)
        return i


class InLocals(Data):
    def __getitem__(self, i):
        x = []
        if i > 5:
            x.append(i)
            load = [i]
            load.append(i)
        return x


class Unused(Data):
    def __getitem__(self, i):
        return i

    def report(self, i):
        if i > 5:
            self.x.append(i)


class Shared(Data):
    def __getitem__(self, i):
        if i > 5:
            self.x[i] += 1
        return i


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Always, {}), (MadeOnce, None), (MadeOnce, [1]), (MadeOnceElsewhere, []), (Cache, {}),
        (LastOne, 1), (SwitchedOff, []), (EndsBefore, []), (InLocals, []), (Unused, []),
        (Shared, torch.zeros(3).share_memory_()),
    ],
)  # fmt: skip
def test_what_is_harmless(kind: type[Data], value: Any) -> None:
    dataset = kind(x=value, **({"log": None} if kind is SwitchedOff else {}))
    assert state_of({"dataset": dataset}).possible == {}


def test_samplers_and_workers_own_functions_read_no_samples() -> None:
    def begin(worker: int) -> None:
        if worker:
            BAD.append(worker)

    roots = {"sampler": Appends(x=[]), "worker_init_fn": begin}
    assert state_of(roots).possible == {}


def test_code_without_source_is_left_alone() -> None:
    names: dict[str, Any] = {}
    exec("class Made:\n def __getitem__(self, i):\n  if i: self.x.append(i)", names)
    made: Callable[[], Any] = names["Made"]
    dataset = made()
    dataset.x = []
    assert state_of({"dataset": dataset}).possible == {}


def test_samples_that_may_depend_on_their_worker() -> None:
    found = state_of({"dataset": AsksForItsWorker(x=1)}).possible
    assert found == {"its worker": "AsksForItsWorker.read"}
    assert state_of({"dataset": SharesWithOthers(x=1)}).possible == {}


class TornError(Exception):
    """Says where a sample is torn."""

    def __init__(self, index: int) -> None:
        super().__init__(f"sample {index}")
        self.index = index


class NobodysError(Exception):
    def __init__(self, index: int) -> None:
        super().__init__(index)


class ShortError(Exception):
    """Has a text alone, unless it is given more."""


def skipping(dataset: Data) -> None:
    try:
        dataset[0]
    except (TornError, ShortError) as error:
        BAD.append(len(error.args))


class Raises(Data):
    def __getitem__(self, i):
        self.check(i)
        return i

    def check(self, i):
        if i > 5:
            raise TornError(i)


class RaisesTwo(Data):
    def __getitem__(self, i):
        if i > 5:
            raise ShortError("short", i)


class RaisesText(Data):
    def __getitem__(self, i):
        if i > 5:
            raise ShortError(f"{i} is short")
        if i > 6:
            raise NobodysError(i)
        if i > 7:
            raise OSError(2, "no such file")
        if i > 8:
            raise


class Catches(Raises):
    def __getitem__(self, i):
        try:
            self.check(i)
        except TornError:
            return 0
        return i


def test_errors_that_workers_pass_on_as_others() -> None:
    found = [state_of({"dataset": kind(x=1)}).possible
             for kind in (Raises, RaisesTwo, RaisesText, Catches)]  # fmt: skip
    raised = {"raises TornError": "Raises.check"}, {"raises ShortError": "RaisesTwo.__getitem__"}
    assert found == [*raised, {}, {}]


class GivesUp(Data):
    def __getitem__(self, i):
        start = time.perf_counter()
        x = load(i)
        took = time.perf_counter() - start
        return x if i else self.late(took)

    def late(self, took):
        if time.monotonic() > self.deadline:
            return 0
        return took


class Complains(Data):
    def __getitem__(self, i):
        start = time.perf_counter()
        x = load(i)
        if time.perf_counter() - start > 1:
            print("slow:", i)
            self.last = time.time()
        return x


def test_samples_that_may_depend_on_the_time() -> None:
    assert state_of({"dataset": GivesUp(deadline=1)}).possible == {"its time": "GivesUp.late"}
    assert state_of({"dataset": Complains(last=1)}).possible == {}


class CutsOften(Data):
    def __getitem__(self, i):
        sample = torch.ones(3)
        if self.x[i] > 3:
            sample[:2] = 0
        self.x[i] += 1
        return sample


class ClearsOften(Data):
    def __getitem__(self, i):
        sample = torch.ones(3)
        self.x += 1
        if self.x > 3:
            sample.zero_()
        return sample


class CutsOftenByHelpers(Data):
    def __getitem__(self, i):
        self.note()
        return self.cut(i)

    def note(self):
        self.x += 1

    def cut(self, i):
        return 0 if self.x > 1000 else i


class BeginsAnew(Data):
    def __iter__(self):
        self.x = 0
        return self

    def __next__(self):
        if self.x > 9:
            return None
        self.x += 1
        return self.x


class CountsOnly(Data):
    def __getitem__(self, i):
        self.x += 1
        if i > 9:
            return 0
        return i


class EmptiesWhenFull(Data):
    def __getitem__(self, i):
        self.x += 1
        if self.x > 9:
            self.seen.clear()
        return i


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        (CutsOften, [0] * 9, "CutsOften.__getitem__"),
        (ClearsOften, 0, "ClearsOften.__getitem__"),
        (CutsOftenByHelpers, 0, "CutsOftenByHelpers.cut"),
        (BeginsAnew, 0, None),
        (CountsOnly, 0, None),
        (EmptiesWhenFull, 0, None),
    ],
)
def test_a_count_that_decides_which_sample_is_made(kind, value, code):
    possible = state_of({"dataset": kind(x=value)}).possible
    assert possible.get(f"{COUNTED}dataset.x") == code


class AddsLambda(Data):
    def __getitem__(self, i):
        record = {"x": i}
        if i % 400 == 399:
            record["more"] = lambda: i
        return record


class GivesFile(Data):
    def __getitem__(self, i):
        if i % 400 == 399:
            return i, open(self.x)  # noqa: PTH123 - what strangers write
        return i, None


class GivesInnerFunction(Data):
    def __getitem__(self, i):
        def more():
            return i

        if i % 400 == 399:
            return {"more": more}
        return {}


class SortsByLambda(Data):
    def __getitem__(self, i):
        keys = {}
        if i % 400 == 399:
            keys["size"] = lambda each: -each
            return sorted([i, 1], key=lambda each: keys["size"](each))
        return [i, 1]


class ReadsFile(Data):
    def __getitem__(self, i):
        if i % 400 == 399:
            with open(self.x) as file:  # noqa: PTH123 - what strangers write
                return file.read()
        return ""


class AlwaysGivesLambda(Data):
    def __getitem__(self, i):
        return {"more": lambda: i}


@pytest.mark.parametrize(
    ("kind", "lacks"),
    [
        (AddsLambda, True),
        (GivesFile, True),
        (GivesInnerFunction, True),
        (SortsByLambda, False),
        (ReadsFile, False),
        (AlwaysGivesLambda, False),
    ],
)
def test_what_no_worker_can_send_of_some_samples(kind, lacks):
    assert (UNSENT in state_of({"dataset": kind(x="file")}).possible) is lacks


class StartsPool(Data):
    def __getitem__(self, i):
        if i % 400 == 399:
            with multiprocessing.Pool(2) as pool:
                return pool.map(load, [i])
        return [load(i)]


class MarksTensor(Data):
    def __getitem__(self, i):
        picture = torch.zeros(3, 8).clone()
        if i % 400 == 399:
            picture.scale = 2.0
        return picture


class MarksPartOfTensor(Data):
    def __getitem__(self, i):
        row = self.x[i]
        if i % 400 == 399:
            row.scale = 2.0
        return row


class MarksRecord(Data):
    def __getitem__(self, i):
        record = Data()
        if i % 400 == 399:
            record.scale = 2.0
        return record


class SetsGrad(Data):
    def __getitem__(self, i):
        picture = torch.zeros(3, 8)
        if i % 400 == 399:
            picture.requires_grad = True
        return picture


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (StartsPool, CHILDREN),
        (MarksTensor, ATTRIBUTES),
        (MarksPartOfTensor, ATTRIBUTES),
        (MarksRecord, None),
        (SetsGrad, None),
    ],
)
def test_what_no_worker_does_or_sends_for_some_samples(kind, path):
    found = state_of({"dataset": kind(x=torch.zeros(4, 8))}).possible
    assert [each for each in found if each in (ATTRIBUTES, CHILDREN)] == [path] * (path is not None)


class Keeps(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record)


class Prints(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        print(text)


LOG = logging.getLogger("test_possible_changes.records")


class Logs(Data):
    def __getitem__(self, i):
        if i % 400 == 399:
            LOG.warning("%d is odd", i)
        return i


class Warns(Data):
    def __getitem__(self, i):
        if i % 400 == 399:
            warnings.warn("odd", stacklevel=1)
        return i


@pytest.mark.parametrize(
    ("handler", "is_kept"),
    [(Keeps(), True), (Prints(), False), (logging.StreamHandler(), False),
     (logging.StreamHandler(io.StringIO()), True)],
)  # fmt: skip
def test_what_is_logged_to_the_script_s_own_process(handler, is_kept, monkeypatch):
    monkeypatch.setattr(LOG, "handlers", [handler])
    monkeypatch.setattr(LOG, "propagate", False)
    assert (REPORTED in state_of({"dataset": Logs()}).possible) is is_kept


def test_warnings_that_are_recorded():
    with warnings.catch_warnings(record=True):
        assert REPORTED in state_of({"dataset": Warns()}).possible


class Notes:
    def __init__(self) -> None:
        self.bad: list[int] = []

    def note(self, i):
        self.bad.append(i)


class NotesElsewhere(Data):
    def __getitem__(self, i):
        if i % 400 == 399:
            self.x.note(i)
        return i


def test_a_helper_that_keeps_what_it_is_told_of():
    found = state_of({"dataset": NotesElsewhere(x=Notes())}).possible
    assert found == {"dataset.x.bad": "Notes.note"}


class KeepsRest(Data):
    def __iter__(self):
        for i in range(9):
            self.x.append(i)
            if len(self.x) > 4:
                yield self.x.pop(0)


class BeginsAnew(KeepsRest):
    def __iter__(self):
        self.x = []
        yield from KeepsRest.__iter__(self)


class GivesRest(Data):
    def __iter__(self):
        for i in range(9):
            self.x.append(i)
            if len(self.x) > 4:
                yield self.x.pop(0)
        while self.x:
            yield self.x.pop()


class NotesOnly(Data):
    def __iter__(self):
        for i in range(9):
            self.x.append(i)
            yield i


class LeavesOut(Data):
    def __iter__(self):
        for i in range(9):
            if i not in self.x:
                self.x.add(i)
                yield i


@pytest.mark.parametrize(
    ("kind", "x", "is_left"),
    [(KeepsRest, [], True), (BeginsAnew, [], False), (GivesRest, [], False),
     (NotesOnly, [], False), (LeavesOut, set(), True)],
)  # fmt: skip
def test_what_a_stream_leaves_for_its_next_pass(kind, x, is_left):
    assert (f"{LEFT}dataset.x" in state_of({"dataset": kind(x=x)}).possible) is is_left


def decoded(packed):
    SCRATCH.write_bytes(packed)
    return SCRATCH.read_bytes()


class ThroughAFunction(Data):
    def __getitem__(self, i):
        return decoded(self.x[i])


class NamedInPlace(Data):
    def __getitem__(self, i):
        name = "decoded.raw"
        with open("tmp/" + name, "wb") as file:  # noqa: PTH123 - what strangers write
            file.write(self.x[i])
        return i


class InItsFolder(Data):
    def __getitem__(self, i):
        (self.folder / "last.json").write_text(json.dumps(i))
        return i


class OneEach(Data):
    def __getitem__(self, i):
        (self.folder / f"{i}.json").write_text(json.dumps(i))
        return i


class ByProcess(Data):
    def __getitem__(self, i):
        path = SCRATCH.with_suffix(f".{os.getpid()}")
        path.write_bytes(self.x[i])
        return i


class GivenByName(Data):
    def __getitem__(self, i):
        return self.written(self.x[i])

    def written(self, path):
        Path(path).write_text("")
        return path


class AppendsToALog(Data):
    def __getitem__(self, i):
        with open("read.log", "a") as file:  # noqa: PTH123 - what strangers write
            file.write(f"{i}")
        return i


class WritesOnce(Data):
    def __getitem__(self, i):
        if not SCRATCH.exists():
            SCRATCH.write_bytes(b"")
        return i


@pytest.mark.parametrize(
    ("kind", "is_one"),
    [
        (ThroughAFunction, True),
        (NamedInPlace, True),
        (InItsFolder, True),
        (OneEach, False),
        (ByProcess, False),
        (GivenByName, False),
        (AppendsToALog, False),
        (WritesOnce, False),
    ],
)
def test_a_file_of_one_name_for_all_samples(kind, is_one):
    data = kind(x=["a.txt", "b.txt"], folder=Path("folder"))
    assert (ONE_FILE in state_of({"dataset": data}).possible) is is_one
