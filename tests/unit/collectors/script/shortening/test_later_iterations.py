"""Which later epochs a shortened life has, beside a loop's first: the last, and turning points."""

from __future__ import annotations

import builtins
import contextlib
import math
import textwrap
from types import SimpleNamespace

import pytest

from gpuadvisor.collectors.script.child.shortening import later_iterations, loops
from gpuadvisor.collectors.script.child.shortening.loop_rewriting import compiled, rewrite
from gpuadvisor.collectors.script.child.shortening.progress import Progress
from gpuadvisor.collectors.script.specification import Shortening


class Bar:
    """A progress bar as tqdm's: it keeps what it runs over, and counts what it gives."""

    def __init__(self, iterable):
        self.iterable = iterable
        self.shown = 0
        self.closed = False

    def __iter__(self):
        for item in self.iterable:
            yield item
            self.shown += 1
        self.closed = True


@pytest.fixture
def lived(monkeypatch):
    """Runs a script's text; returns the epochs that it told `at` of, and its longest loop."""
    monkeypatch.setattr(loops, "_loops", None)

    def lived(text, later=4):
        progress = Progress()
        watch = loops.begin(Shortening("", batches=4, steps=4, epochs=2, later=later), progress)
        done = rewrite(textwrap.dedent(text), "/home/user/train.py", watch.count)
        watch.add(done.sites, done.learns)
        seen, optimizer = [], SimpleNamespace()

        def train():
            for _ in range(3):
                number = progress.pass_began(100, 4)
                progress.batch_given(number)
                progress.stepped(optimizer)
                progress.pass_ended(number)

        def step(batch=None):
            progress.optimizer_built()
            progress.stepped(optimizer)

        def batches(count):
            number = progress.pass_began(count, 4)
            for n in range(count):
                progress.batch_given(number)
                yield n

        names = {"train": train, "step": step, "batches": batches, "at": seen.append}
        names |= {"Bar": Bar, "math": math, "Any": SimpleNamespace}
        exec(compiled(done, "train.py"), names)
        return seen, max(watch.report(), key=lambda loop: len(loop.lived))

    yield lived
    for name in (loops.LOOP, loops.WHILE):
        with contextlib.suppress(AttributeError):
            delattr(builtins, name)


def test_the_last_epoch_is_lived_and_the_loop_comes_to_its_end(lived):
    seen, loop = lived("""\
        bar = Bar(range(90))
        for epoch in bar:
            train(); at(epoch)
        else:
            at("end")
        assert bar.closed and bar.shown == 90
    """)
    assert seen == [0, 1, 89, "end"]
    assert (loop.planned, loop.done, loop.shortened) == (90, 3, True)
    assert loop.lived == (0, 1, 89)
    assert len(loop.seconds) == 3


def test_places_that_are_enumerated(lived):
    seen, loop = lived("""\
        for number, epoch in enumerate(range(100, 190), 1):
            if number == 50: pass
            train(); at(epoch)
    """)
    assert seen == [100, 101, 149, 189]
    assert loop.lived == (0, 1, 49, 89)


CONDITIONS = {
    "if epoch == epochs - 4: pass": [86],
    "if epoch >= 30: pass": [],
    "if 30 <= epoch < 60: pass": [30],
    "if epoch and epoch % 3 == 0: pass": [3],
    "if (epoch + 1) % 10 == 0: pass": [],
    "if epoch % 7 == 0: pass": [7],  # true in the first epoch, but not since its pass
    "if not epoch % 7: pass": [7],
    "if epoch == 0: pass": [],
    "if epoch in (20, 40): pass": [20],
    "if epoch in MILESTONES and epochs > 50: pass": [25],
    "is_frozen = not 5 < epoch < 7": [6],
    "rate = 1.0 if epoch != 17 else 0.1": [17],
    "if epoch == int(0.5 * epochs): pass": [45],
    "if epoch == math.floor(args.share * epochs): pass": [22],
    "if epoch == settings['thaw']: pass": [12],
    "if epoch == 11 and loss < best(): pass": [11],
    "if thaws(epoch): pass": [],
    "if epoch == unknown_elsewhere() or epoch == 8: pass": [8],
    "if later == 8: pass": [],
    "if args.epoch == 8: pass": [],
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_an_epoch_is_lived_that_the_text_treats_in_another_way(lived, condition):
    seen, _ = lived(f"""\
        MILESTONES, args, settings = [25, 50], Any(share=0.25, epoch=8), {{"thaw": 12}}
        loss, later, epochs = 1.0, 8, 90
        def best(): at("called"); return 2.0
        thaws = unknown_elsewhere = lambda *_: False
        for epoch in range(epochs):
            train(); at(epoch)
            {condition}
    """)
    assert seen.count("called") == (11 in seen)  # nothing is called ahead of its time
    assert [each for each in seen if each != "called"] == [0, 1, *CONDITIONS[condition], 89]


def test_conditions_of_methods_and_of_functions_that_are_given_the_epoch(lived):
    seen, _ = lived("""\
        def rate(epoch, options):
            return 0.1 if epoch == options.drop else 1.0  # no such name where the loop is
        def adjust(epoch):
            if epoch == 40: at("adjusted")
        class Trainer:
            def __init__(self): self.epochs, self.closed = 90, 15
            def before(self):
                if self.epoch == self.epochs - self.closed: at("closed")
            def run(self):
                for self.epoch in range(1, self.epochs + 1):
                    self.before(); train(); at(self.epoch)
        Trainer().run()
        for epoch in range(60):
            adjust(epoch); train(); at(epoch)
    """)
    assert seen == [1, 2, "closed", 75, 90, 0, 1, "adjusted", 40, 59]


def test_the_fewest_epochs_that_show_the_most(lived):
    text = """\
        for epoch in range(90):
            train(); at(epoch)
            if epoch % 5 == 0: pass
            if epoch % 7 == 0: pass
            if epoch == 50: pass
            if epoch == 51: pass
    """
    assert lived(text)[0] == [0, 1, 35, 50, 51, 89]
    assert lived(text, later=2)[0] == [0, 1, 35, 89]
    assert lived(text, later=1)[0] == [0, 1, 89]
    assert lived(text, later=0)[0] == [0, 1]


def test_a_short_loop_is_lived_whole(lived):
    seen, loop = lived("for epoch in range(3): train(); at(epoch)")
    assert seen == [0, 1, 2]
    assert not loop.shortened
    assert lived("for epoch in range(2): train(); at(epoch)")[0] == [0, 1]


def test_epochs_that_take_no_step_are_passed_over_as_others_are(lived):
    seen, _ = lived("""\
        for epoch in range(90):
            at(epoch)
            if epoch != 30: train()
    """)
    assert seen == [0, 1, 30, 89]


def test_a_break_ends_the_loop_where_it_is_lived(lived):
    seen, _ = lived("""\
        for epoch in range(90):
            train(); at(epoch)
            if epoch > 20: break
        at("end")
    """)
    assert seen == [0, 1, 89, "end"]


OTHERS = {
    "a while loop": "epoch = 0\nwhile epoch < 90: train(); at(epoch); epoch += 1",
    "zipped": "for epoch, _ in zip(range(90), iter(int, 1)): train(); at(epoch)",
    "mapped": "for epoch in map(lambda n: n, range(90)): train(); at(epoch)",
    "endless, in effect": "for epoch in range(10**18): train(); at(epoch)",
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_be_passed_over_ends_early(lived, name):
    assert lived(OTHERS[name])[0] == [0, 1]


def test_enumerated_and_begun_ranges(lived):
    assert lived("for n, epoch in enumerate(range(5, 90)): train(); at(epoch)")[0] == [5, 6, 89]
    seen, _ = lived("""\
        epochs = iter(range(90)); next(epochs)
        for epoch in epochs:
            train(); at(epoch)
            if epoch == 9: at("nine")
    """)
    assert seen == [1, 2, 9, "nine", 89]


def test_folds_and_stages_do_not_multiply(lived):
    seen, _ = lived("""\
        for fold in range(10):
            for epoch in range(90):
                train(); at((fold, epoch))
                if fold == 5 or epoch == 40: pass
    """)
    assert seen == [(0, 0), (0, 1), (0, 40), (0, 89), (1, 0), (1, 1), (9, 0), (9, 1)]


def test_steps_whose_batches_the_script_makes_itself(lived):
    seen, loop = lived("""\
        for i in range(50_000):
            if i % 1000 == 0: at("saved")
            if i > 0 and i % 3000 == 500: at("denser")
            step(); at(i)
        for start in range(0, 900, 10): step(); at(start)
    """)
    steps = ["saved", 0, 1, 2, 3, "denser", 500, "saved", 1000, 49_999]
    assert seen == [*steps, 0, 10, 20, 30, 890]
    assert (str(loop.kind), loop.planned, loop.done) == ("steps", 50_000, 7)


def test_steps_in_epochs_are_passed_over_in_the_first(lived):
    seen, _ = lived("""\
        for epoch in range(30):
            if epoch == 9: at("nine")
            for i in range(20): step(); at((epoch, i))
    """)
    epochs = [[(epoch, i) for i in range(4)] for epoch in (0, 1, 9, 29)]
    assert seen == [*epochs[0], (0, 19), *epochs[1], "nine", *epochs[2], *epochs[3]]


def test_a_loader_may_not_have_the_batches_of_later_steps(lived):
    seen, _ = lived("""\
        given = batches(100)
        for i in range(100): step(next(given)); at(i)
    """)
    assert seen == [0, 1, 2, 3]


def test_a_mistake_of_ours_lets_the_loop_go_on(lived, monkeypatch):
    monkeypatch.setattr(loops, "choose", lambda *_: 1 / 0)
    assert len(lived("for epoch in range(40): train(); at(epoch)")[0]) == 40


def test_a_condition_that_fails_for_some_epoch_is_left_out():
    import sys

    found = later_iterations.evaluated(
        "e", ["1 / (e - 5) > 0", "e == nobody", "e == 3", "x.e"], range(9), sys._getframe()
    )
    assert list(found) == [[n == 3 for n in range(9)]]
