"""Which loops of a script end early, after how many iterations, and what is said of them."""

from __future__ import annotations

import builtins
import contextlib
import itertools
import textwrap
import threading
from types import SimpleNamespace

import pytest

from gpuadvisor.collectors.script.child.shortening import loops
from gpuadvisor.collectors.script.child.shortening.loop_rewriting import compiled, rewrite
from gpuadvisor.collectors.script.child.shortening.progress import Progress
from gpuadvisor.collectors.script.specification import Shortening

BATCHES, EPOCHS = 4, 2


class Loader:
    """Reports its passes as a shortened DataLoader does."""

    def __init__(self, progress: Progress, batches: int = 100, is_shortened: bool = True) -> None:
        self._progress = progress
        self._whole = batches
        self._batches = min(BATCHES, batches) if is_shortened else batches

    def __len__(self) -> int:
        return self._whole

    def __iter__(self):
        number = self._progress.pass_began(self._whole, self._batches)
        for batch in range(self._batches):
            self._progress.batch_given(number)
            yield batch
        self._progress.pass_ended(number)


class Torch:
    """What scripts here call: it counts as the hooks of a process do."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def optimizer(self):
        self._progress.optimizer_built()
        made = SimpleNamespace()
        made.step = lambda: self._progress.stepped(made)
        return made

    def module(self):
        made = SimpleNamespace(is_known=False)

        def called(grad):
            self._progress.roots += not made.is_known
            made.is_known = True
            self._progress.called(made, grad)

        made.train = lambda: called(grad=True)
        made.infer = lambda: called(grad=False)
        return made

    def backward(self):
        self._progress.backward_done()

    def loader(self, *arguments):
        return Loader(self._progress, *arguments)


@pytest.fixture
def script(monkeypatch):
    """Runs a script's text; returns how often it called `at(name)`, by name, and its loops."""
    monkeypatch.setattr(loops, "_loops", None)

    def script(text):
        text = textwrap.dedent(text)
        progress = Progress()
        watch = loops.begin(Shortening("", batches=BATCHES, steps=BATCHES, epochs=EPOCHS), progress)
        done = rewrite(text, "/home/user/train.py", watch.count)
        watch.add(done.sites, done.learns)
        seen = {}

        def at(name, value=1):
            seen[name] = seen.get(name, 0) + value

        torch = Torch(progress)
        names = {"torch": torch, "at": at, "itertools": itertools, "seen": seen}
        names |= {"model": torch.module(), "threading": threading}
        exec(compiled(done, "train.py"), names)
        report = [
            (int(each.place.rpartition(" ")[2]), str(each.kind), each.planned, each.done,
             each.shortened)
            for each in watch.report()
        ]  # fmt: skip
        return seen, report

    yield script
    for name in (loops.LOOP, loops.WHILE):
        with contextlib.suppress(AttributeError):
            delattr(builtins, name)


def test_epochs_over_a_loader(script):
    seen, report = script("""\
        o, loader = torch.optimizer(), torch.loader()
        for epoch in range(90):
            for batch in loader:
                model.train(); torch.backward(); o.step(); at("step")
            at("epoch")
        else:
            at("else")
    """)
    assert seen == {"step": EPOCHS * BATCHES, "epoch": EPOCHS, "else": 1}
    assert report == [(2, "epochs", 90, 2, True), (3, "steps", None, BATCHES, False)]


def test_epochs_in_a_function_and_batches_by_hand(script):
    seen, report = script("""\
        o = torch.optimizer()
        def train():
            for start in range(0, 6400, 64):
                o.step(); at("step")
        epoch = 0
        while epoch < 90:
            train()
            epoch += 1
    """)
    assert seen == {"step": EPOCHS * BATCHES}
    assert report == [(3, "steps", 100, BATCHES, True), (6, "epochs", 90, EPOCHS, True)]


def test_fewer_than_that_is_not_called_shortened(script):
    _, report = script("""\
        o = torch.optimizer()
        for epoch in range(2):
            for batch in range(3):
                o.step()
    """)
    assert report == [(2, "epochs", 2, 2, False), (3, "steps", 3, 3, False)]


STEP_LOOPS = {
    "for": "for i in range(1000):\n  o.step(); at('step')",
    "count": "for i in itertools.count():\n  o.step(); at('step')",
    "endless": "while True:\n  o.step(); at('step')\n  if seen['step'] > 1000: break",
    "counter": "i = 0\nwhile i < 1000:\n  o.step(); at('step')\n  i += 1",
    "enumerate": "for i, j in enumerate(range(1000)):\n  o.step(); at('step')",
    "gradient accumulation": (
        "for i in range(1000):\n"
        "  for micro in range(40): model.train(); torch.backward(); at('micro', 1 / 40)\n"
        "  o.step(); at('step')"
    ),
    "two optimizers": (
        "p = torch.optimizer()\nfor i in range(1000):\n  p.step(); o.step(); at('step')"
    ),
    "a critic of five steps": (
        "p = torch.optimizer()\nfor i in range(1000):\n"
        "  for j in range(3): p.step()\n  o.step(); at('step')"
    ),
    "batches of a generator": (
        "def batches():\n  while True: yield dict()\n"
        "for batch in batches():\n  o.step(); at('step')"
    ),
    "a list of batches": "for b in [1] * 1000 + []:\n  o.step(); at('step')",
    "warm-up": (
        "for i in range(1000):\n  if i < 50: continue\n  o.step(); at('step')"
    ),
    "evaluation first, as in nanoGPT": (
        "i = 0\nwhile True:\n"
        "  if i % 2 == 0:\n"
        "    for split in ['train', 'val']:\n"
        "      for k in range(200): model.infer(); at('evaluated')\n"
        "  for micro in range(8): model.train(); torch.backward()\n"
        "  o.step(); at('step')\n"
        "  i += 1\n"
        "  if i > 1000: break\n"
        "at('evaluated', -16)"
    ),
    "evaluation with a loader": (
        "val = torch.loader()\nfor i in range(1000):\n  o.step(); at('step')\n"
        "  for batch in val: model.infer()"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEP_LOOPS)
def test_loops_over_steps(script, name):
    seen, report = script("o = torch.optimizer()\n" + STEP_LOOPS[name])
    assert seen["step"] == BATCHES
    assert seen.get("micro", BATCHES) == pytest.approx(BATCHES)
    assert seen.get("evaluated", 0) == 0
    assert ("steps", True) in {(each[1], each[4]) for each in report}
    assert "epochs" not in {each[1] for each in report if each[4]}


WHOLE = {
    "micro-batches of one step": (
        "o = torch.optimizer()\n"
        "for micro in range(40): model.train(); torch.backward(); at('it')\no.step()"
    ),
    "unrolled in time": (
        "for t in range(40): model.train(); at('it')\ntorch.backward()"
    ),
    "without steps": "for i in range(40): at('it')",
    "folds in a list": (
        "folds = list(range(40))\no = torch.optimizer()\nfor fold in folds:\n"
        "  at('it')\n  for i in range(3): o.step()"
    ),
    "models of an ensemble": (
        "pairs = [(torch.module(), torch.optimizer()) for _ in range(40)]\n"
        "for m, o in pairs: m.train(); o.step(); at('it')"
    ),
    "models of an ensemble, counted": (
        "pairs = [torch.optimizer() for _ in range(40)]\n"
        "for i, o in enumerate(pairs): o.step(); at('it')"
    ),
    "a batch by hand that crashes at the end of its loader": (
        "o, batches = torch.optimizer(), iter(torch.loader(40))\n"
        "at('it', 40 - 4)\nfor i in range(40): next(batches); o.step(); at('it')"
    ),
    "before the first step of a script that will learn": (
        "o = torch.optimizer()\ndef learn(): o.step()\n"
        "for i in range(41):\n  model.infer()\n  if i == 40: learn()\n  else: at('it')"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_what_ends_by_itself_or_is_needed_whole(script, name):
    seen, _ = script(WHOLE[name])
    assert seen["it"] == 40


def test_folds_of_a_range_with_epochs_and_steps(script):
    seen, report = script("""\
        for fold in range(10):
            at("fold")
            o = torch.optimizer()
            for epoch in range(90):
                at("epoch")
                for batch in torch.loader():
                    o.step()
    """)
    assert seen == {"fold": EPOCHS, "epoch": EPOCHS * EPOCHS}
    assert [each[:4] for each in report[:2]] == [(1, "epochs", 10, 2), (4, "epochs", 90, 2)]


@pytest.mark.parametrize(
    ("count", "made", "seen"),
    [(20, "torch.module()", 20), (20, "model", EPOCHS), (90, "torch.module()", EPOCHS)],
)
def test_models_of_an_ensemble_that_only_infer(script, count, made, seen):
    """Generations of a population are too many to be models of an ensemble."""
    text = f"""\
        for number in range({count}):
            m = {made}
            for batch in torch.loader(): m.infer()
            at("model")
    """
    assert script(text)[0] == {"model": seen}


def test_phases_of_the_transfer_learning_tutorial(script):
    seen, _ = script("""\
        o, loaders = torch.optimizer(), {"train": torch.loader(), "val": torch.loader()}
        for epoch in range(25):
            for phase in ["train", "val"]:
                for batch in loaders[phase]:
                    if phase == "train":
                        model.train(); torch.backward(); o.step()
                    else:
                        model.infer()
                    at(phase)
    """)
    assert seen == {"train": EPOCHS * BATCHES, "val": EPOCHS * BATCHES}


def test_a_loader_that_is_cycled_gives_two_passes(script):
    seen, _ = script("""\
        o, loader = torch.optimizer(), torch.loader()
        def cycle():
            while True:
                for batch in loader: yield batch
        batches = cycle()
        for i in range(1000):
            next(batches); o.step(); at("step")
    """)
    assert seen["step"] == EPOCHS * BATCHES + 1  # the end shows when more is asked for


def test_steps_by_hand_begin_a_loader_anew(script):
    seen, _ = script("""\
        o, loader = torch.optimizer(), torch.loader()
        batches = iter(loader)
        i = 0
        while i < 1000:
            try:
                next(batches)
            except StopIteration:
                batches = iter(loader)
                next(batches)
            o.step(); at("step")
            i += 1
    """)
    assert seen["step"] == EPOCHS * BATCHES + 1


def test_inference_by_hand(script):
    seen, report = script("for i in range(0, 1000, 8): model.infer(); at('call')")
    assert seen["call"] == BATCHES
    assert report == [(1, "steps", 125, BATCHES, True)]


def test_inference_that_keeps_gradients_on(script):
    seen, _ = script("for i in range(1000): model.train(); at('call')")
    assert seen["call"] == BATCHES


def test_updates_by_hand_without_an_optimizer(script):
    seen, _ = script("for i in range(1000): model.train(); torch.backward(); at('step')")
    assert seen["step"] == BATCHES


def test_a_loop_that_prepares_batches_in_a_thread_is_left_alone(script):
    seen, _ = script("""\
        o = torch.optimizer()
        asked, given = threading.Semaphore(0), threading.Semaphore(0)
        def prepare():
            for i in range(40):
                asked.acquire(); at("prepared"); given.release()
        threading.Thread(target=prepare, daemon=True).start()
        def step():
            asked.release(); given.acquire(); o.step()
        [step() for _ in range(40)]
    """)
    assert seen["prepared"] == 40


def test_a_mistake_of_ours_lets_the_loop_go_on(script, monkeypatch):
    monkeypatch.setattr(loops.Entry, "_judge", lambda _: 1 / 0)
    seen, _ = script("o = torch.optimizer()\nfor i in range(40): o.step(); at('step')")
    assert seen["step"] == 40


def test_a_loop_without_steps_is_no_longer_watched(script):
    seen, _ = script(f"""\
        for i in range({loops.IDLE_ENTRIES + 5}):
            def parts(): yield 1
            made = parts()
            for part in made: at(type(part).__name__)
    """)
    assert seen["int"] == loops.IDLE_ENTRIES + 5


@pytest.mark.parametrize(
    ("setup", "condition", "end", "planned"),
    [
        ("", "True", "if n > most: break", 101),
        ("", "True", "if n >= most: break", 100),
        ("", "True", "if most <= n: break", 100),
        ("", "True", "if n == 100 or seen.get('end'): break", 100),
        ("most = None", "True", "if most is not None and n >= most: break", None),
        ("", "True", "if most is not None and n >= most: break", 100),
        ("", "True", "if seen.get('end') and n >= most: break", None),
        ("", "True", "if seen.get('end'): break", None),
        ("", "n < most", "pass", 100),
        ("n = 40", "n <= most", "pass", 61),
        ("most = 1e2", "n < most", "pass", 100),
        ("", "n < most and not seen.get('end')", "pass", 100),
        ("", "n < most or n < 3", "pass", None),
        ("most = '100'", "True", "if n >= int(most): break", None),
        ("", "True", "if n % 2: n += 1\n    if n >= most: break", None),
        ("", "n < most", "most -= 1", None),
    ],
)
def test_how_often_a_while_loop_means_to_run(script, setup, condition, end, planned):
    _, ((_, kind, told, done, shortened),) = script(f"""\
o = torch.optimizer()
n, most = 0, 100
{setup}
while {condition}:
    o.step(); at("step")
    n += 1
    {end}
""")
    assert (kind, told, done, shortened) == ("steps", planned, BATCHES, True)


@pytest.mark.parametrize(("limit", "planned"), [("most", 600), ("asked", None)])
def test_a_limit_of_an_object_is_read_without_running_its_code(script, limit, planned):
    seen, ((*_, told, done, _),) = script(f"""\
        class Trainer:
            def __init__(self): self.count, self.most = 0, 600
            @property
            def asked(self): at("asked"); return 600
            def run(self, o):
                while True:
                    o.step()
                    self.count += 1
                    if self.count >= self.{limit}:
                        break
        Trainer().run(torch.optimizer())
    """)
    assert (told, done) == (planned, BATCHES)
    assert seen.get("asked", 0) == (BATCHES if limit == "asked" else 0)


def test_what_evaluates_is_told_from_what_trains(script, monkeypatch):
    script("""\
        o = torch.optimizer()
        for step in range(100):
            model.train(); torch.backward(); o.step()
        for batch in range(4):
            model.infer()
    """)
    assert [(each.planned, each.trains) for each in loops.current().report()] == [
        (100, True),
        (4, False),
    ]


def test_a_loop_that_goes_beyond_what_its_text_says_was_ended_early(script):
    _, ((_, _, planned, done, shortened),) = script("""\
        class Trainer: most = 3
        t, o, n = Trainer(), torch.optimizer(), 0
        def more(): t.most = 600
        while True:
            o.step(); more()
            n += 1
            if n >= t.most: break
    """)
    assert (planned, done, shortened) == (None, BATCHES, True)
