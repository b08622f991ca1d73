"""What of a data set is state, what changed of it, and that looking at it runs nobody's code."""

from __future__ import annotations

import collections
import ctypes
import enum
import functools
import io
import itertools
import logging
import mmap
import multiprocessing
import os
import pathlib
import random
import sqlite3
import subprocess
import sys
import tarfile
import threading
import weakref
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy
import pytest
from hypothesis import given, settings

from gpuadvisor.collectors.script.child.rehearsal.dataset_state import (
    State,
    StateWatch,
    changes,
    fed_back,
    held,
    loader_roots,
    state_of,
)
from gpuadvisor.domain.rehearsal import Moment, StateKind

torch = pytest.importorskip("torch")

LEVEL = 1
SETTINGS = {"level": 1}
ARGS = Namespace(level=1, learning_rate=0.1)
CACHE: dict[int, Any] = {}


class Config:
    level = 1
    unrelated = 1


@functools.lru_cache
def cached(index: int) -> int:
    return index


def through_a_function() -> int:
    return LEVEL


class Data:
    """A data set with whatever attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return index


def state(dataset: Any, **others: Any) -> State:
    return state_of({"dataset": dataset, **others})


def changed(dataset: Any, change: Callable[[Any], Any]) -> dict[str, StateKind]:
    """Return what a change changes, without the generators that all share."""
    before = state(dataset)
    assert changes(before, state(dataset)) == [], "looking at it is a change itself"
    change(dataset)
    shared = ("random", "numpy.random", "torch")
    found = changes(before, state(dataset))
    return {path: kind for path, kind, _ in found if path not in shared}


GENERATOR, VALUE, CONTAINER = StateKind.GENERATOR, StateKind.VALUE, StateKind.CONTAINER
HANDLE, ITERATOR = StateKind.HANDLE, StateKind.ITERATOR


def set_level(data: Any) -> None:
    data.level = 2


@dataclass
class Large:
    """What is made for its test alone, not for each process that collects the tests."""

    make: Callable[[], Any]


@pytest.mark.parametrize(
    ("attribute", "change", "kind"),
    [
        pytest.param(random.Random(1), lambda d: d.x.random(), GENERATOR, id="random"),
        pytest.param(
            numpy.random.default_rng(1), lambda d: d.x.normal(), GENERATOR, id="numpy generator"
        ),
        pytest.param(
            numpy.random.RandomState(1), lambda d: d.x.rand(), GENERATOR, id="random state"
        ),
        pytest.param(
            numpy.random.Philox(1), lambda d: d.x.random_raw(), GENERATOR, id="bit generator"
        ),
        pytest.param(
            numpy.random.default_rng(1), lambda d: d.x.spawn(1), GENERATOR, id="spawned from"
        ),
        pytest.param(
            torch.Generator(), lambda d: torch.rand(1, generator=d.x), GENERATOR, id="torch"
        ),
        pytest.param(1, lambda d: setattr(d, "x", 2), VALUE, id="number"),
        pytest.param(True, lambda d: setattr(d, "x", 1), VALUE, id="number of another type"),
        pytest.param(
            Large(lambda: "a" * 3_000_000),
            lambda d: setattr(d, "x", "b" + d.x[1:]),
            VALUE,
            id="text",
        ),
        pytest.param(numpy.zeros(9), lambda d: d.x.put(3, 1), VALUE, id="array"),
        pytest.param(
            Large(lambda: numpy.zeros((2000, 2000), "u1")),
            lambda d: d.x.put(777_777, 1),
            VALUE,
            id="big array",
        ),
        pytest.param(
            Large(lambda: numpy.arange(4_000_000)),
            lambda d: d.x.sort() or d.x[::-1].sort(),
            VALUE,
            id="sorted",
        ),
        pytest.param(torch.zeros(3), lambda d: d.x.add_(1), VALUE, id="tensor"),
        pytest.param({}, lambda d: d.x.update(a=1), CONTAINER, id="dict"),
        pytest.param({"a": [1, {"b": 2}]}, lambda d: d.x["a"][1].clear(), CONTAINER, id="nested"),
        pytest.param([None] * 50_000, lambda d: d.x.__setitem__(777, 1), CONTAINER, id="slots"),
        pytest.param(
            Large(lambda: [None] * 2_000_000),
            lambda d: d.x.__setitem__(777, 1),
            CONTAINER,
            id="many slots",
        ),
        pytest.param(
            Large(lambda: [(str(i), i) for i in range(300_000)]),
            lambda d: d.x.__setitem__(777, ("777", -1)),
            CONTAINER,
            id="many pairs",
        ),
        pytest.param({1, 2}, lambda d: d.x.add(3), CONTAINER, id="set"),
        pytest.param(collections.deque([1]), lambda d: d.x.append(3), CONTAINER, id="deque"),
        pytest.param(
            collections.OrderedDict(a=1), lambda d: d.x.update(b=1), CONTAINER, id="ordered dict"
        ),
        pytest.param(
            collections.defaultdict(int), lambda d: d.x["a"], CONTAINER, id="default dict"
        ),
        pytest.param(collections.Counter(), lambda d: d.x.update("a"), CONTAINER, id="counter"),
        pytest.param(bytearray(3), lambda d: d.x.append(3), CONTAINER, id="bytearray"),
        pytest.param(
            functools.lru_cache(lambda i: i), lambda d: d.x(1), CONTAINER, id="cached function"
        ),
        pytest.param(
            numpy.array([None, 1], object), lambda d: d.x.put(0, 1), CONTAINER, id="object array"
        ),
        pytest.param(iter([1, 2]), lambda d: next(d.x), ITERATOR, id="list iterator"),
        pytest.param((i for i in range(3)), lambda d: next(d.x), ITERATOR, id="generator"),
        pytest.param(enumerate([1, 2]), lambda d: next(d.x), ITERATOR, id="enumerate"),
        pytest.param(zip([1, 2], "ab", strict=True), lambda d: next(d.x), ITERATOR, id="zip"),
        pytest.param(map(str, [1, 2]), lambda d: next(d.x), ITERATOR, id="map"),
        pytest.param(itertools.islice(range(9), 5), lambda d: next(d.x), ITERATOR, id="islice"),
        pytest.param(io.BytesIO(b"abc"), lambda d: d.x.read(1), ITERATOR, id="bytes stream"),
        pytest.param(io.StringIO("abc"), lambda d: d.x.read(1), ITERATOR, id="text stream"),
    ],
)
def test_a_change_of_each_kind_is_seen(
    attribute: Any, change: Callable[[Any], Any], kind: StateKind
) -> None:
    made = attribute.make() if isinstance(attribute, Large) else attribute
    assert changed(Data(x=made), change) == {"dataset.x": kind}


class Slotted:
    __slots__ = ("__hidden", "level")

    def __init__(self) -> None:
        self.level = 1
        self.__hidden = 1

    def hide(self) -> None:
        self.__hidden += 1


@pytest.mark.parametrize(
    ("dataset", "change", "paths"),
    [
        (Data(inner=Data(level=1)), lambda d: set_level(d.inner), ["dataset.inner.level"]),
        (Slotted(), set_level, ["dataset.level"]),
        (Slotted(), lambda d: d.hide(), ["dataset._Slotted__hidden"]),
        (Data(x=[Data(level=1)]), lambda d: set_level(d.x[0]), ["dataset.x[0].level"]),
        (Data(x={"a": Data(level=1)}), lambda d: set_level(d.x["a"]), ["dataset.x['a'].level"]),
        (
            torch.utils.data.Subset(Data(level=1), [0]),
            lambda d: set_level(d.dataset),
            ["dataset.dataset.level"],
        ),
        (
            torch.utils.data.ConcatDataset([Data(level=1), Data(level=1)]),
            lambda d: set_level(d.datasets[1]),
            ["dataset.datasets[1].level"],
        ),
        (
            Data(x=functools.partial(print, sep=Data(level=1))),
            lambda d: set_level(d.x.keywords["sep"]),
            ["dataset.x.keywords['sep'].level"],
        ),
    ],
)
def test_paths_lead_to_what_changed(
    dataset: Any, change: Callable[[Any], Any], paths: list[str]
) -> None:
    assert list(changed(dataset, change)) == paths


def test_a_closure_of_the_collate_function_is_state() -> None:
    alpha = 1

    def collate(batch: Any) -> Any:
        return alpha, batch

    before = state(Data(), collate_fn=collate)
    alpha = 2
    found = changes(before, state(Data(), collate_fn=collate))
    assert found == [("collate_fn.alpha", VALUE, "int")]


def test_defaults_of_methods_are_state() -> None:
    class Caching(Data):
        def __getitem__(self, index: int, cache: dict[int, int] = {}) -> int:  # noqa: B006
            return cache.setdefault(index, index)

    assert list(changed(Caching(), lambda d: d[1])) == ["dataset.__getitem__.__defaults__"]


def test_class_attributes_are_state() -> None:
    class Shared(Data):
        level = 1

    assert list(changed(Shared(), lambda d: set_level(type(d)))) == ["dataset.level"]


def test_globals_that_the_code_uses_are_state(monkeypatch: pytest.MonkeyPatch) -> None:
    class Using(Data):
        def __getitem__(self, index: int) -> Any:
            return self.helper(), [SETTINGS for _ in range(1)], ARGS.level, Config.level

        def helper(self) -> Any:
            return through_a_function(), cached(1), CACHE

    module = sys.modules[__name__]
    for name, change, path in (
        ("LEVEL", lambda: setattr(module, "LEVEL", 2), "global LEVEL"),
        ("SETTINGS", lambda: SETTINGS.update(level=2), "global SETTINGS"),
        ("ARGS", lambda: set_level(ARGS), "global ARGS.level"),
        ("Config", lambda: set_level(Config), "global Config.level"),
        ("cached", lambda: cached(7), "global cached"),
        ("CACHE", lambda: CACHE.update({1: 2}), "global CACHE"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))
        assert list(changed(Using(), lambda _, change=change: change())) == [path]
    # What no code of the data set uses is not its state.
    assert changed(Using(), lambda _: setattr(ARGS, "learning_rate", 2)) == {}
    assert changed(Using(), lambda _: setattr(Config, "unrelated", 2)) == {}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"a line\n" * 10_000)
    return path


def handles_of(file: Path) -> Iterator[tuple[Any, Callable[[Any], Any] | None]]:
    yield file.open("rb"), lambda d: d.x.seek(7)
    yield file.open("rb", buffering=0), lambda d: d.x.read(7)
    yield file.open("r+b"), lambda d: d.x.read(7)
    yield file.open(), lambda d: d.x.seek(0, 2)
    database = sqlite3.connect(file.with_suffix(".db"))
    yield database, lambda d: d.x.execute("create table t (x)").execute("insert into t values (1)")
    with zipfile.ZipFile(file.with_suffix(".zip"), "w") as archive:
        archive.write(file)
    yield zipfile.ZipFile(file.with_suffix(".zip")), lambda d: d.x.testzip()
    with tarfile.open(file.with_suffix(".tar"), "w") as tape:
        tape.add(file)
    yield tarfile.open(file.with_suffix(".tar")), lambda d: d.x.getmembers()  # noqa: SIM115
    with file.open("r+b") as opened:
        yield mmap.mmap(opened.fileno(), 0), lambda d: d.x.read(1)


def test_open_files_are_handles_and_their_offset_is_state(file: Path) -> None:
    for handle, change in handles_of(file):
        dataset = Data(x=handle)
        try:
            assert held(state(dataset))[0][:2] == ("dataset.x", HANDLE), handle
            assert changed(dataset, change)["dataset.x"] is HANDLE, handle
        finally:
            handle.close()


class Hdf5Like:
    """What a library of an extension module shows of an open file."""

    def fileno(self) -> int:
        raise AssertionError("nobody may ask")


def test_what_has_a_file_number_is_a_handle() -> None:
    assert held(state(Data(x=Hdf5Like()))) == [("dataset.x", HANDLE, f"{__name__}.Hdf5Like")]


def test_a_connection_to_another_process_is_a_handle() -> None:
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        kind = "multiprocessing.connection.Connection"
        assert held(state(Data(x=ours))) == [("dataset.x", HANDLE, kind)]


def test_a_file_opened_at_the_first_sample_is_not_held_before(file: Path) -> None:
    dataset = Data(x=None)
    assert held(state(dataset)) == []
    with file.open("rb") as opened:
        assert changed(dataset, lambda d: setattr(d, "x", opened)) == {"dataset.x": HANDLE}


def test_what_processes_share_and_what_cannot_change_is_no_state(file: Path) -> None:
    counter, ring = multiprocessing.Value("i", 0), multiprocessing.Array("d", 4)
    raw = multiprocessing.RawArray(ctypes.c_double, 4)
    tensor = torch.zeros(3).share_memory_()
    viewed = torch.from_numpy(numpy.frombuffer(ring.get_obj()))
    mapped = numpy.memmap(file, mode="r+")
    dataset = Data(
        a=counter,
        b=ring,
        c=raw,
        d=tensor,
        e=mapped,
        f=numpy.frombuffer(raw),
        g=viewed,
        h=mapped[1:],
    )

    def change(_: Any) -> None:
        counter.value = ring[0] = raw[0] = tensor[0] = 1
        mapped[0] = 7

    assert changed(dataset, change) == {}
    assert held(state(dataset)) == []
    assert state(dataset).unseen == ()


def test_what_a_manager_shares_is_no_state_but_may_be_fed_back() -> None:
    with multiprocessing.Manager() as manager:
        level, names, long = manager.Value("i", 1), manager.list(["a"]), manager.list(range(9000))
        dataset = Data(x=level, y=names, z=long)
        before = state(dataset)
        assert fed_back(before, state(dataset)) == []
        names.append("b")
        long.append(0)  # which takes too long to tell
        after = state(dataset)
        assert changes(before, after) == held(after) == []
        assert [path for path, _, _ in fed_back(before, after)] == ["dataset.y"]
        assert after.unseen == ("dataset.z",)


def test_what_a_sampler_drew_by_as_its_pass_began_is_not_fed_back() -> None:
    sampler = torch.utils.data.WeightedRandomSampler(torch.ones(4), 4)
    before = state_of({"sampler": sampler})
    sampler.weights[2] = 9.0
    after = state_of({"sampler": sampler})
    assert [path for path, _, _ in fed_back(before, after)] == ["sampler.weights"]
    assert fed_back(before, after, drawn=frozenset({"sampler.weights"})) == []


@pytest.mark.parametrize(
    "value",
    [
        logging.getLogger("a"), threading.Lock(), weakref.ref(Data), sys.stdout, Path("/a"), os,
        torch.float32, numpy.dtype("f4"), numpy.add, enum.Enum("E", "a b"), range(3), print, len,
        pathlib.PurePath("a"), Data, torch.device("cpu"), torch.Size([1]), slice(1), object(),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_other_things_are_neither_held_nor_unseen(value: Any) -> None:
    dataset = Data(x=value, y=[value])
    assert changed(dataset, lambda _: str(value)) == {}
    assert held(state(dataset)) == []
    assert state(dataset).unseen == ()


def trap(*_: Any, **__: Any) -> Any:
    raise AssertionError("code of the script's was run")


HOSTILE = (
    "__eq__", "__hash__", "__len__", "__getattr__", "__getattribute__", "__iter__", "__repr__",
    "__str__", "__bool__", "__dir__", "__reduce_ex__", "__sizeof__", "__getitem__", "__call__",
    "__index__", "__int__", "__float__", "__contains__", "__del__", "__instancecheck__",
    "__format__", "keys", "items", "values", "tell", "read", "close", "getstate", "__enter__",
)  # fmt: skip


@pytest.mark.parametrize(
    "base", [object, dict, list, tuple, set, str, int, float, bytes, collections.OrderedDict,
             random.Random, io.RawIOBase, functools.partial, collections.deque],
    ids=lambda base: base.__name__,
)  # fmt: skip
def test_no_code_of_the_script_is_run(base: Any) -> None:
    body: dict[str, Any] = dict.fromkeys((n for n in HOSTILE if n != "__del__"), trap)
    body["level"] = property(trap)
    body["__class__"] = property(trap)
    if base is io.RawIOBase:
        del body["close"]  # the interpreter calls it in the end
    meta = type(
        "Meta", (type(base),), dict.fromkeys(("__hash__", "__eq__", "__instancecheck__"), trap)
    )
    cls = meta("Hostile", (base,), body)
    hostile = base.__new__(cls, print) if base is functools.partial else base.__new__(cls)
    state(hostile)
    with_it = Data(x=hostile, y=[hostile], z={"a": hostile})
    assert changes(state(with_it), state(with_it)) == []


def test_cycles_deep_nesting_and_aliases_end() -> None:
    knot: list[Any] = []
    knot += [knot, {"a": knot}]
    doubled: list[Any] = []
    for _ in range(60):
        doubled = [doubled, doubled]
    deep: Any = []
    for _ in range(500):
        deep = [deep, Data()]
    dataset = Data(x=knot, y=deep, z=doubled)
    dataset.me = dataset
    assert changed(dataset, lambda d: d.x.append(1)) == {"dataset.x": CONTAINER}


def test_what_was_not_looked_at_is_named() -> None:
    many = Data(x=[Data(level=i) for i in range(1000)])
    assert state(many).unseen == ("dataset.x",)
    wide = Data(**{f"a{i}": Data(level=i) for i in range(5000)})
    before = state(wide)
    assert before.is_cut
    assert before.unseen
    # Fewer parts leave room for others: what only one state looked at is not compared.
    assert changes(before, state(Data(**dict(list(vars(wide).items())[1000:])))) == []


def test_a_shared_object_counts_as_the_data_sets() -> None:
    shared = Data(level=1)
    dataset = Data(a=Data(b=Data(c=shared)))
    before = state(dataset, sampler=Data(level=shared))
    shared.level = 2
    found = changes(before, state(dataset, sampler=Data(level=shared)))
    assert [path for path, *_ in found] == ["dataset.a.b.c.level"]


def test_when_it_changed() -> None:
    dataset = Data(level=0, cache={}, stream=iter([1, 2]))
    watch, loader = StateWatch(2), Data()
    found = watch.pass_begins(loader, state(dataset))
    dataset.cache[1] = 1
    found += watch.pass_ends(state(dataset))
    dataset.level = 1
    found += watch.pass_begins(loader, state(dataset))
    found += watch.pass_ends(state(dataset))
    assert [(c.loader, c.epoch, c.path, c.kind, c.moment, c.detail) for c in found] == [
        (2, 0, "dataset.stream", ITERATOR, Moment.HELD, "list_iterator"),
        (2, 0, "dataset.cache", CONTAINER, Moment.READING, "dict"),
        (2, 1, "dataset.level", VALUE, Moment.BETWEEN_EPOCHS, "int"),
    ]


def test_no_worker_outlives_a_loader_that_is_made_for_one_pass() -> None:
    dataset, watch = Data(level=0), StateWatch(0)
    watch.pass_begins(Data(), state(dataset))
    watch.pass_ends(state(dataset))
    dataset.level = 1
    assert watch.pass_begins(Data(), state(dataset)) == []
    dataset.level = 2
    assert [each.path for each in watch.pass_ends(state(dataset))] == ["dataset.level"]


def test_the_state_of_a_real_loader() -> None:
    loader = torch.utils.data.DataLoader(Data(level=1), shuffle=True, generator=torch.Generator())
    before = state_of(loader_roots(loader))
    list(loader)
    found = {path: kind for path, kind, _ in changes(before, state_of(loader_roots(loader)))}
    assert found == {"batch_sampler.sampler.generator": GENERATOR} or found == {
        "sampler.generator": GENERATOR
    }


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.binary(max_size=9)
)
NESTED = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=5)
        | st.sets(st.text(max_size=5) | st.integers(), max_size=5)
        | st.builds(lambda x: Data(x=x), inner)
        | st.builds(lambda x: numpy.array(x), st.lists(st.integers(0, 9), max_size=5))
        | st.builds(lambda x: torch.tensor(x), st.lists(st.floats(width=32), max_size=5))
    ),
    max_leaves=30,
)


def copies(value: Any) -> Iterator[Any]:
    """Yield copies of a value in which one thing is another."""
    if type(value) in (list, tuple):
        for i, item in enumerate(value):
            for other in copies(item):
                yield type(value)((*value[:i], other, *value[i + 1 :]))
        yield type(value)((*value, "new"))
    elif type(value) is dict:
        for key, item in value.items():
            for other in copies(item):
                yield {**value, key: other}
        yield {**value, "a new key": 1}
    elif type(value) is set:
        yield value | {"a new one"}
    elif type(value) is Data:
        for other in copies(value.x):
            yield Data(x=other)
    elif isinstance(value, numpy.ndarray):
        yield numpy.append(value, 1)
        if value.size:
            yield value + 1
    elif isinstance(value, torch.Tensor):
        yield torch.cat([value, torch.zeros(1)])
        if value.numel():
            yield torch.where(value == 1, 2.0, 1.0)
    else:
        yield ("another",)


@settings(max_examples=30, deadline=None)
@given(NESTED)
def test_any_change_of_a_nested_value_is_seen(value: Any) -> None:
    before = state(Data(x=value))
    assert changes(before, state(Data(x=value))) == []
    for other in copies(value):
        assert changes(before, state(Data(x=other))), other


PRINT_STATE = """
import random, sys
import numpy
from gpuadvisor.collectors.script.child.rehearsal.dataset_state import state_of

class Data:
    pass

data = Data()
data.rng, data.old = numpy.random.default_rng(3), numpy.random.RandomState(3)
data.python = random.Random(3)
data.items = {"b": {"c", "a", "b", 3, None}, "a": [1.5, (2, b"x")], 7: frozenset("abcdef")}
data.array, data.long = numpy.arange(9), [(str(i), {i: None}) for i in range(9999)]
data.function = lambda batch: batch
for path, part in sorted(state_of({"dataset": data}).parts.items()):
    if path not in ("random", "numpy.random"):
        print(path, part.kind, part.digest, part.type_name)
"""


def test_digests_are_the_same_in_every_process() -> None:
    source = str(Path(__file__).parents[5] / "src")
    texts = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": source, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PRINT_STATE]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        texts.add(done.stdout)
    assert len(texts) == 1
    assert "dataset.rng generator" in texts.pop()
