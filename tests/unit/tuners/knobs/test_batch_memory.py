"""Batches that arrive in memory that was used before are the batches that were sent."""

import io
import queue
import random
import subprocess
import sys
import threading
import weakref

import pytest

torch = pytest.importorskip("torch")

from torch import multiprocessing  # noqa: E402 - torch may be missing
from torch.utils.data import DataLoader, Dataset  # noqa: E402 - torch may be missing

from gpuadvisor.tuners.knobs import batch_memory  # noqa: E402 - torch may be missing
from gpuadvisor.tuners.knobs.batch_memory import Initialization  # noqa: E402 - torch may be missing

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="batches are shared in another way there"
)
NUMBERS = batch_memory.LEAST_BYTES // 4
"""Elements of a sample: a batch of two is large enough."""


class Numbered(Dataset):
    """Sample n is full of the number n."""

    def __init__(self, count=40):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((NUMBERS,), float(index)), index


class Growing(Numbered):
    """Samples of five sizes."""

    def __getitem__(self, index):
        return torch.full((NUMBERS * (1 + index % 5),), float(index)), index


class Cached(Numbered):
    """Sends the tensors that it keeps, and changes one of them now and then, as no one should."""

    def __init__(self, count=40):
        super().__init__(count)
        self.kept = {}

    def __getitem__(self, index):
        key = index % 4
        if key not in self.kept or index % 9 == 0:
            self.kept[key] = torch.full((NUMBERS,), float(key))
        return self.kept[key], key


def halves(samples):
    """Return two views of one tensor, which is not shared yet, and the numbers."""
    both = torch.stack([sample for sample, _ in samples] * 2)
    return {"views": both.chunk(2), "numbers": torch.tensor([number for _, number in samples])}


@pytest.fixture(autouse=True)
def arrived_again(monkeypatch):
    """Count the batches in memory that was used before; forget what other tests left."""
    times = []
    monkeypatch.setattr(batch_memory, "_ON_REUSE", [lambda: times.append(1)])
    batch_memory._ARRIVALS.mine.segments.clear()
    yield times
    batch_memory._ARRIVALS.mine.segments.clear()


def loaded(dataset, **changes):
    known = {"batch_size": 2, "num_workers": 2, "worker_init_fn": Initialization(None)}
    return DataLoader(dataset, **{**known, **changes})


def shared_by_file(load):
    """Return what `load` returns; torch gives its manager of shared memory a second to start."""
    for _ in range(9):
        try:
            return load()
        except RuntimeError as error:
            if "manager connection has timed out" not in str(error):
                raise
    pytest.skip("torch's manager of shared memory does not start within a second here")


def is_whole(batch, numbers):
    wanted = torch.as_tensor(numbers, dtype=batch.dtype).reshape(-1, 1)
    return torch.equal(batch.reshape(len(wanted), -1), wanted.expand(len(wanted), NUMBERS))


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_stays_as_it_was(seed, arrived_again):
    """Batches, views of them and arrays are kept for a random time."""
    generator, kept = random.Random(seed), []
    forms = [lambda b: b, lambda b: b[:, 5:6], lambda b: b.numpy(), lambda b: b.untyped_storage()]
    for batch, numbers in loaded(Numbered(80)):
        assert is_whole(batch, numbers)
        kept.append((generator.choice(forms)(batch), numbers))
        del batch
        while len(kept) > generator.randrange(1, 6):
            form, numbers = kept.pop(generator.randrange(len(kept)))
            if isinstance(form, torch.UntypedStorage):
                form = torch.empty(0).set_(form, 0, (len(numbers), NUMBERS))
            for row, number in zip(form, numbers.tolist(), strict=True):
                assert (row == number).all()
    assert arrived_again


def test_memory_is_used_again(arrived_again):
    for _epoch in range(2):
        for batch, numbers in loaded(Numbered(60)):
            assert is_whole(batch, numbers)
    segments = batch_memory._ARRIVALS.mine.segments
    assert len(arrived_again) > 30
    assert len(segments) <= 2 * 4  # of the second epoch's workers only


SCRIPT = """
import sys, torch
from torch.utils.data import DataLoader, Dataset
from gpuadvisor.tuners.knobs import batch_memory

class Numbered(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return torch.full((1 << 18,), float(index)), index

if __name__ == "__main__":
    again = []
    batch_memory.on_reuse(lambda: again.append(1))
    own = {"multiprocessing_context": sys.argv[1], "worker_init_fn": batch_memory.reuse}
    loader = DataLoader(Numbered(), batch_size=2, num_workers=1, **own)
    for batch, numbers in loader:
        assert all((row == number).all() for row, number in zip(batch, numbers))
    print(len(again) > 10)
"""


@pytest.mark.slow
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_any_start_of_the_workers(context, tmp_path):
    """In a process of its own, which ends with the servers that `multiprocessing` leaves."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    run = subprocess.run([sys.executable, path, context], capture_output=True, text=True)
    assert run.stdout == "True\n", run.stderr


def test_a_collate_function_of_ones_own():
    for batch in loaded(Numbered(), collate_fn=halves):
        assert all(is_whole(view, batch["numbers"]) for view in batch["views"])


def padded(samples):
    """Return what a collate function may expect: new memory is zero, and as large as asked for."""
    storage = samples[0][0]._typed_storage()._new_shared(2 * NUMBERS)
    batch = samples[0][0].new(storage).view(2, NUMBERS)
    batch[:, : NUMBERS // 2] = 1
    return batch


def test_a_collate_function_that_asks_for_shared_memory_itself(arrived_again):
    assert {int(batch.sum()) for batch in loaded(Numbered(), collate_fn=padded)} == {NUMBERS}
    assert not arrived_again


def test_sizes_that_vary(arrived_again):
    for batch, (number,) in loaded(Growing(80), batch_size=1, num_workers=1):
        assert batch.numel() == NUMBERS * (1 + number % 5)
        assert (batch == number).all()
    assert arrived_again
    assert len(batch_memory._ARRIVALS.mine.segments) <= batch_memory.MOST_SEGMENTS + 1


def test_what_a_worker_keeps_is_not_overwritten():
    for sample, number in loaded(Cached(80), batch_size=None):
        assert (sample == number).all()


def test_the_scripts_own_initialization_comes_first(capfd):
    loader = loaded(Numbered(4), worker_init_fn=Initialization(print), num_workers=1)
    assert len(list(loader)) == 2
    assert capfd.readouterr().out == "0\n"


def test_the_knob_says_so_when_memory_is_used_again(script):
    target = script(batch_memory="reuse")
    assert list(target.loader(Numbered(4), batch_size=2))  # without workers
    assert not target.details
    for _, numbers in target.loader(Numbered(), batch_size=2, num_workers=1):
        assert len(numbers) == 2
    assert "batch_memory" in target.details


def test_small_batches_are_left_alone(arrived_again):
    dataset = [torch.full((8,), float(n)) for n in range(40)]
    got = torch.cat(list(loaded(dataset)))
    assert torch.equal(got[:, 0], torch.arange(40.0))
    assert not arrived_again
    assert not batch_memory._ARRIVALS.mine.segments


def test_another_way_of_sharing(arrived_again):
    loader = loaded(Numbered(20), worker_init_fn=by_file, num_workers=1)
    kept = shared_by_file(lambda: list(loader))
    assert all(is_whole(batch, numbers) for batch, numbers in kept)
    assert not arrived_again


def by_file(worker_id):
    multiprocessing.set_sharing_strategy("file_system")
    batch_memory.reuse(worker_id)


class Switching(Numbered):
    """Shares in another way from its tenth sample on."""

    def __getitem__(self, index):
        if index == 10:
            multiprocessing.set_sharing_strategy("file_system")
        return super().__getitem__(index)


def test_a_worker_that_changes_the_way_of_sharing():
    loader = loaded(Switching(40), num_workers=1)
    kept = shared_by_file(lambda: list(loader))
    assert all(is_whole(batch, numbers) for batch, numbers in kept)


def test_initialized_twice(arrived_again):
    twice = Initialization(Initialization(None))
    assert all(is_whole(b, n) for b, n in loaded(Numbered(), worker_init_fn=twice))
    assert arrived_again


def looked_at(batch, number, go, answers):
    torch.set_num_threads(1)  # as in any forked process: OpenMP's threads are not there
    go.wait(30)
    answers.put(is_whole(batch, [number]))


def test_what_a_forked_process_has_is_left_to_it():
    context = multiprocessing.get_context("fork")
    answers, go, others = context.SimpleQueue(), context.Event(), []
    for place, (batch, _) in enumerate(loaded(Numbered(80), batch_size=1, num_workers=1)):
        if place < 3:
            others.append(context.Process(target=looked_at, args=(batch, place, go, answers)))
            others[-1].start()  # after which only the child has the batch
    go.set()
    assert [answers.get() for _ in others] == [True] * 3
    for other in others:
        other.join()


def loads_too(answers):
    torch.set_num_threads(1)
    loader = loaded(Numbered(), batch_size=1, num_workers=1)
    answers.put(all(is_whole(batch, numbers) for batch, numbers in loader))


def test_a_forked_process_gives_nothing_back_for_its_parent():
    context = multiprocessing.get_context("fork")
    answers, kept = context.SimpleQueue(), []
    for place, (batch, numbers) in enumerate(loaded(Numbered(80), batch_size=1, num_workers=1)):
        if place < 3:
            kept.append((batch, numbers))
        if place == 3:
            other = context.Process(target=loads_too, args=(answers,))
            other.start()
            assert answers.get()
            other.join()
    assert all(is_whole(batch, numbers) for batch, numbers in kept)


def late(queue, go, answers):
    """Look at the batches only when told to."""
    torch.set_num_threads(1)  # as in any forked process: OpenMP's threads are not there
    got = [queue.get() for _ in range(4)]
    go.wait(30)
    answers.put([is_whole(batch, [number]) for number, batch in enumerate(got)])


def test_what_is_sent_on_is_left_to_the_other_process():
    context = multiprocessing.get_context("fork")
    queue, answers, go = context.Queue(), context.SimpleQueue(), context.Event()
    other = context.Process(target=late, args=(queue, go, answers))
    other.start()
    for place, (batch, _) in enumerate(loaded(Numbered(80), batch_size=1, num_workers=1)):
        if place < 4:
            queue.put(batch)
    go.set()
    assert answers.get() == [True] * 4
    other.join()


# -- whatever holds a batch ------------------------------------------------------------------------


class Twice(torch.autograd.Function):
    """Keeps its input for the backward pass, as C++ code of others does."""

    @staticmethod
    def forward(ctx, batch, weight):
        ctx.save_for_backward(batch)
        return (batch * weight).sum()

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient * ctx.saved_tensors[0]


def by_a_graph(batch):
    weight = torch.ones(NUMBERS, requires_grad=True)
    loss = (batch[0] * weight).sum()
    return lambda: torch.autograd.grad(loss, weight)[0]


def by_a_function_of_autograd(batch):
    weight = torch.ones(NUMBERS, requires_grad=True)
    loss = Twice.apply(batch[0], weight)
    return lambda: torch.autograd.grad(loss, weight)[0]


def by_a_hook(batch):
    weight = torch.ones(NUMBERS, requires_grad=True)
    weight.register_hook(lambda gradient: batch[0])
    return lambda: torch.autograd.grad(weight.sum(), weight)[0]


def by_a_capsule(batch):
    capsule = torch.utils.dlpack.to_dlpack(batch)
    return lambda: torch.utils.dlpack.from_dlpack(capsule)


def by_an_array(batch):
    rows = batch.numpy()[:, 3:9]
    return lambda: torch.from_numpy(rows)


def by_a_buffer(batch):
    view = memoryview(batch.numpy())
    return lambda: torch.frombuffer(view, dtype=torch.float32)


def in_place(batch):
    view = batch.mul_(2).div_(2).view(-1)
    return lambda: view


def detached(batch):
    part = batch.detach()[0, 1:]
    return lambda: part


def as_data(batch):
    tensor = torch.empty(0)
    tensor.data = batch
    return lambda: tensor


def by_its_storage(batch):
    storage = batch.untyped_storage()
    return lambda: torch.empty(0).set_(storage, 0, (NUMBERS,))


def by_a_typed_storage(batch):
    storage = batch._typed_storage()
    return lambda: torch.empty(0).set_(storage._untyped_storage, 0, (NUMBERS,))


def by_a_queue(batch):
    kept = queue.Queue()
    kept.put(batch)
    return kept.get


def shared_once_more(batch):
    row = batch.share_memory_()[0]
    return lambda: row


def by_a_cycle(batch):
    class Owner:
        pass

    owner = Owner()
    owner.itself, owner.batch = owner, batch
    return lambda: owner.batch


def by_a_generator(batch):
    def waiting(kept):
        yield
        yield kept

    steps = waiting(batch)
    next(steps)
    return lambda: next(steps)


def by_a_traceback(batch):
    try:
        raise ValueError
    except ValueError as error:
        raised = error
    return lambda: raised.__traceback__.tb_frame.f_locals["batch"]


class Blocked(io.BytesIO):
    """A file on a disk that is slow at first."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()

    def write(self, data):
        self.go.wait(30)
        return super().write(data)


def by_a_thread_that_saves_it(batch):
    file = Blocked()
    thread = threading.Thread(target=torch.save, args=(batch, file))
    thread.start()

    def read():
        file.go.set()
        thread.join()
        file.seek(0)
        return torch.load(file)

    return read


def weakly(batch):
    reference = weakref.ref(batch)
    return lambda: reference()


def weakly_by_a_view(batch):
    reference = weakref.ref(batch[0])
    return lambda: reference()


HOLDERS = (
    by_a_graph,
    by_a_function_of_autograd,
    by_a_hook,
    by_a_capsule,
    by_an_array,
    by_a_buffer,
    in_place,
    detached,
    as_data,
    by_its_storage,
    by_a_typed_storage,
    by_a_queue,
    shared_once_more,
    by_a_cycle,
    by_a_generator,
    by_a_traceback,
    by_a_thread_that_saves_it,
    weakly,
    weakly_by_a_view,
)


def held(holders, count):
    """Return what reads every third batch again, and its number, after all have arrived."""
    readers = []
    own = {"batch_size": 1, "num_workers": 1}
    for place, (batch, number) in enumerate(loaded(Numbered(count), **own)):
        if place % 3 == 0:
            readers.append((holders[place // 3 % len(holders)](batch), int(number)))
        del batch
    return readers


def test_what_holds_a_batch_in_any_way_has_it_to_the_end(arrived_again):
    for read, number in held(HOLDERS, 3 * len(HOLDERS)):
        batch = read()
        assert batch is None or (batch == number).all(), read.__qualname__
    assert arrived_again


def weakly_by_its_storage(batch):
    reference = weakref.ref(batch.untyped_storage())
    return lambda: torch.empty(0).set_(reference(), 0, (NUMBERS,))


def test_a_weak_reference_to_memory_finds_a_later_batch(arrived_again):
    """Why the knob is tried only where it is named: nothing counts these."""
    found = [(read()[0], number) for read, number in held([weakly_by_its_storage], 12)]
    assert arrived_again
    assert any(value != number for value, number in found)


# -- a torch that counts in another way ------------------------------------------------------------


def test_a_torch_that_counts_in_another_way(script, monkeypatch, arrived_again):
    monkeypatch.setattr(torch._C, "_storage_Use_Count", lambda cdata: 2)
    target = script(batch_memory="reuse")
    for batch, numbers in target.loader(Numbered(12), batch_size=2, num_workers=1):
        assert is_whole(batch, numbers)
    assert "in another way" in target.refusals["batch_memory"]
    assert not arrived_again


@pytest.mark.parametrize(
    ("owner", "name"),
    [(torch._C, "_storage_Use_Count"), (torch.storage._StorageBase, "_new_shared")],
    ids=["count", "memory"],
)
def test_a_torch_that_lacks_what_it_stands_on(owner, name, script, monkeypatch):
    monkeypatch.delattr(owner, name)
    target = script(batch_memory="reuse")
    assert target.loader(Numbered(4), batch_size=2, num_workers=1).worker_init_fn is None
    assert name in target.refusals["batch_memory"]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_this_torch_counts_as_it_should(mode):
    with mode():
        assert batch_memory.unable() is None
