"""Branches that no iteration of a shortened life took, and that may change what settings rely on.

Programs are scripts' loops: `step()` takes an optimizer's step, `batches()` is a pass over a
loader. A program reports what was reached again and again, and never taken.
"""

from __future__ import annotations

import textwrap
from types import SimpleNamespace
from typing import Any

import pytest

from gpuadvisor.collectors.script.child.shortening import branches, loops
from gpuadvisor.collectors.script.child.shortening.loop_rewriting import compiled, rewrite
from gpuadvisor.collectors.script.child.shortening.progress import Progress
from gpuadvisor.collectors.script.specification import Shortening


class Anything(list):
    """Stands for a data set, a model, a part of them, and for options."""

    level = 1

    def __getattr__(self, name: str) -> Any:
        return Anything([self]) if len(name) < 20 else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self


@pytest.fixture
def reported(monkeypatch):
    """Runs a program; returns the branches that it reports."""
    monkeypatch.setattr(loops, "_loops", None)

    def run(text):
        progress = Progress()
        watch = loops.begin(Shortening("", batches=4, steps=4, epochs=2, later=0), progress)
        failing = SimpleNamespace(send=lambda _, detail: pytest.fail(detail))
        done = rewrite(textwrap.dedent(text), "/home/user/train.py", 0, channel=failing)
        watch.add(done.sites, done.learns, done.marks)
        optimizer = SimpleNamespace()

        def batches(*_):
            number = progress.pass_began(100, 4)
            for n in range(4):
                progress.batch_given(number)
                yield n
            progress.pass_ended(number)

        def step(*_):
            progress.optimizer_built()
            progress.stepped(optimizer)
            return 0.5

        class DataLoader:
            def __init__(self, data=None, **parts):
                self.dataset = data

            __iter__ = batches

        names = {"step": step, "batches": batches, "DataLoader": DataLoader, "args": Anything()}
        names |= {"data": Anything(), "model": Anything(), "nn": Anything(), "math": Anything()}
        exec(compiled(done, "train.py"), names)
        return list(watch.report_branches())

    yield run
    import builtins

    for name in (loops.LOOP, loops.WHILE, branches.BRANCH, branches.VALUE):
        vars(builtins).pop(name, None)


def epochs(*late: str, before: str = "") -> str:
    """A program that trains for some epochs and has these lines at the end of each."""
    return textwrap.dedent(before) + textwrap.dedent("""
        loader = DataLoader(data)
        loss, bad, epoch = 1.0, 0, 0
        for epoch in range(12):
            for batch in loader:
                loss = step(batch)
            bad = bad + (loss > 9)
    """) + textwrap.indent("\n".join(late), "    ")  # fmt: skip


LATE = {
    "if": (["if loss < 0.1: data.level += 1"], "loss < 0.1", "data"),
    "elif": (["if loss > 9: pass", "elif loss < 0.1: data.level = 2"], "loss < 0.1", "data"),
    "else": (["if loss > 0.1: pass", "else: data.level = 2"], "not (loss > 0.1)", "data"),
    "after continue": (["if loss > 0.1: continue", "data.level = 2"], "not (loss > 0.1)", "data"),
    "in place": (["if bad > 2: data.items.append(3)"], "bad > 2", "data"),
    "a method": (["if bad > 2: loader.dataset.harder()"], "bad > 2", "data"),
    "a sampler": (["if bad > 2: data.sampler.weights = [loss]"], "bad > 2", "order"),
    "environment": (["if bad > 2: import os; os.environ['A'] = 'b'"], "bad > 2", "data"),
    "short circuit": (["bad > 2 and data.append(1)"], "bad > 2", "data"),
    "ternary": (["data.append(1) if bad > 2 else None"], "bad > 2", "data"),
    "a looked up value": (["data.level = {True: 2}.get(bad > 2, 1)"], "data.level", "data"),
    "a ternary's value": (["data.level = 2 if bad > 2 else data.level"], "data.level", "data"),
    "match": (["match bad > 2:", "    case True: data.level = 2"], "case True", "data"),
    "while": (["while bad > 2: data.level, bad = 2, 0"], "bad > 2", "data"),
    "except": (
        ["try: [1].index(1 + bad // 9)", "except ValueError: data.level = 2"],
        "except ValueError",
        "data",
    ),
    "weights": (["if bad > 2: model[0].weight.clamp_(0)"], "bad > 2", "model"),
    "parameters": (
        ["if bad > 2:", "    for p in model.parameters(): p.requires_grad = False"],
        "bad > 2",
        "model",
    ),
    "an optimizer's state": (["if bad > 2: opt.load_state_dict(best)"], "bad > 2", "model"),
    "a layer": (["model.train()", "if bad > 2: model[1] = 3"], "bad > 2", "model"),
    "a type of weights": (["model.train()", "if bad > 2: model.half()"], "bad > 2", "model"),
    "pruning": (["if bad > 2: prune.l1_unstructured(model[0], 'w')"], "bad > 2", "model"),
    "after an assertion": (
        ["try:", "    assert bad > 2", "    data.level = 2", "except AssertionError: pass"],
        "bad > 2",
        "data",
    ),
    "a model's attribute": (["model.train()", "if bad > 2: model.scale = 3"], "bad > 2", "model"),
    "a comprehension": (["[data.append(1) for _ in 'a' if bad > 2]"], "bad > 2", "data"),
    "a generator": (["any(data.append(1) for _ in 'a' if bad > 2)"], "bad > 2", "data"),
    "setattr": (["if bad > 2: setattr(data, 'level', 2)"], "bad > 2", "data"),
    "setattr of object": (["if bad > 2: object.__setattr__(data, 'a', 2)"], "bad > 2", "data"),
    "its own setattr": (["if bad > 2: data.__setattr__('a', 2)"], "bad > 2", "data"),
    "a value for setattr": (["setattr(data, 'a', bad > 2)"], "another value of", "data"),
    "its dictionary": (["if bad > 2: data.__dict__['a'] = 2"], "bad > 2", "data"),
    "vars": (["if bad > 2: vars(data)['a'] = 2"], "bad > 2", "data"),
    "vars updated": (["if bad > 2: vars(data).update(a=2)"], "bad > 2", "data"),
    "its class": (["if bad > 2: type(data).level = 2"], "bad > 2", "data"),
    "a part by getattr": (["if bad > 2: getattr(data, 'part').level = 2"], "bad > 2", "data"),
    "operator": (
        ["if bad > 2: import operator; operator.setitem(data.a, 1, 2)"],
        "bad > 2",
        "data",
    ),
    "a result thrown away": (["_ = bad > 2 and data.harder()"], "bad > 2", "data"),
    "within a condition": (["if bad > 2 and data.append(1): pass"], "bad > 2", "data"),
    "a guard": (["match bad:", "    case _ if bad > 2: data.level = 2"], "if bad > 2", "data"),
    "a lambda's": (["f = lambda n: n > 2 and data.append(1)", "f(bad)"], "n > 2", "data"),
    "a loop over what may come": (["for x in range(bad): data.append(x)"], "range(bad)", "data"),
    "an assertion": (
        ["try: assert bad < 2", "except Exception: data.level = 2"],
        "except Exception",
        "data",
    ),
    "an assertion and all exceptions": (
        ["try: assert bad < 2", "except: data.level = 2"],
        "except",
        "data",
    ),
    "an exit": (["if bad > 2: raise SystemExit", "if bad > 3: exit()"], "bad > 3", "rows"),
    "what may be taken": (
        ["import itertools as i", "for x in i.takewhile(lambda x: x > bad, [1]): step()"],
        "another answer",
        "rows",
    ),
    "the first that is found": (
        ["next((x for x in loader if step() > 9), None)"],
        "another answer",
        "rows",
    ),
    "whether there is any": (["any(step() > 9 for x in loader)"], "another answer", "rows"),
    "early stopping": (["if bad > 2: break"], "bad > 2", "rows"),
    "setattr of any name": (["a = 'b'", "if bad > 2: setattr(data, a, 2)"], "bad > 2", "data"),
    "the end of a loop within": (
        ["if bad > 2:", "    for x in (): pass", "    else: break"],
        "bad > 2",
        "rows",
    ),
    "a number that a library gives": (
        ["def told(value):", "    if value > 2: data.level = 2", "list(map(told, [bad]))"],
        "value > 2",
        "data",
    ),
    "another exit": (["if bad > 3: quit()"], "bad > 3", "rows"),
    "an exit at once": (["import os", "if bad > 3: os._exit(0)"], "bad > 3", "rows"),
    "a method's answer": (["if not args.stopped(): data.level = 2"], "args.stopped()", "data"),
    "an attribute": (["args.n = bad", "if args.n > 2: data.level = 2"], "args.n > 2", "data"),
    "an attribute of an answer": (["if step().real > 2: data.level = 2"], "step().real", "data"),
    "a text": (["word = str(loss)", "if word.endswith('9'): data.level = 2"], "word.", "data"),
    "another name": (["own, n = loader.dataset, 1", "if bad > 2: own.a = 2"], "bad > 2", "data"),
    "a method's part": (["if bad > 2: data.part(3).level = 2"], "bad > 2", "data"),
    "a name given on the way": (["if (n := bad) and n > 2: data.a = 2"], "n > 2", "data"),
    "a name with a type": (["n: int = bad", "if n > 2: data.level = 2"], "n > 2", "data"),
    "all weights": (["if bad > 2: [best(p) for p in net.parameters()]"], "bad > 2", "model"),
    "data by their name": (["if bad > 2: args.dataset.level = 2"], "bad > 2", "data"),
    "a loader by its name": (["if bad > 2: args.dataloader.level = 2"], "bad > 2", "data"),
    "an answer's use": (["if bad > 2: best = data.items.pop()"], "bad > 2", "data"),
    "a module": (["if bad > 2: torch.onnx.export(best)"], "bad > 2", "model"),
    "another module": (["if bad > 2: torch.jit.script(best)"], "bad > 2", "model"),
    "a module by its name": (["if bad > 2: onnx.export(best)"], "bad > 2", "model"),
    "its tool": (["if bad > 2: nn.utils.prune.remove(best)"], "bad > 2", "model"),
    **{
        f"a part: {part}": ([f"if bad > 2: best(net[0].{part})"], "bad > 2", "model")
        for part in (
            "add_param_group", "bias", "data", "grad", "named_parameters", "parameters",
            "register_forward_hook", "requires_grad", "requires_grad_",
        )
    },
    **{
        f"a change: {call}": (["model.train()", f"if bad > 2: model.{call}(3)"], "bad > 2", "model")
        for call in ("add_module", "append", "apply")
    },
    **{
        f"known by {call}": ([f"model.{call}()", "if bad > 2: model.scale = 3"], "bad > 2", "model")
        for call in ("eval", "parameters", "state_dict")
    },
}  # fmt: skip


@pytest.mark.parametrize("case", LATE)
def test_forms_of_a_late_branch(reported, case):
    lines, what, touch = LATE[case]
    found = [each for each in reported(epochs(*lines)) if not each.taken]
    assert [(what in each.what, *map(str, each.touches)) for each in found] == [(True, touch)]
    assert found[0].place.startswith("train.py, line ")
    assert found[0].in_pass is ("in loader" in lines[0])


BY_CLOCK = {
    "at once": "import time\nfor x in loader:\n    step()\n    if time.time() > 9e9: break",
    "a sum of differences": """
        from time import perf_counter as now, perf_counter
        spent = 0.0
        for x in loader:
            start = perf_counter()
            step()
            spent += perf_counter() - start
            if spent > 9e9 or loss < 0: break
    """,
    "while there is time": """
        import datetime
        n, end = 0, datetime.datetime.now() + datetime.timedelta(days=9)
        while n < 12 and datetime.datetime.now() < end:
            step(); n += 1
    """,
    "a function of its own": """
        import time
        def seconds(start): return time.monotonic() - start
        for x in loader:
            step()
            if seconds(time.monotonic()) > 9e9: exit()
    """,
    "a flag": """
        import time
        for x in loader:
            step()
            is_over = time.time() > 9e9
            if is_over: break
    """,
}


@pytest.mark.parametrize("form", BY_CLOCK)
def test_a_loop_that_the_clock_may_end(reported, form):
    before = "loader, loss = DataLoader(data), 1.0\n"
    found = reported(before + textwrap.dedent(BY_CLOCK[form]))
    assert [(*map(str, each.touches), each.taken) for each in found] == [("clock", "rows", False)]


@pytest.mark.parametrize(
    ("value", "is_told"),
    [("'00:00:10:00'", True), ("dict(hours=9)", True), ("limit", True), ("None", False),
     ("options.get('max_time')", False)],
)  # fmt: skip
def test_a_time_that_ends_a_loop_of_a_library_where_there_is_one(reported, value, is_told):
    before = "limit, options = 60.0, {}\nTrainer = retried = lambda **given: given\n"
    found = reported(
        f"{before}Trainer(max_epochs=3, max_time={value})\nTrainer(max_epochs=3)\n"
        "retried(max_time=60)"
    )
    assert [(each.what, *map(str, each.touches)) for each in found] == (
        [(f"max_time={value}", "clock")] * is_told
    )


def test_times_that_are_only_told_end_no_loop(reported):
    found = reported(
        epochs(
            "name = f'run-{time.time()}'",
            "step_of = best(name)",
            "if time.time() - start > 60: best(name)",
            "if step_of(name) > 3: break",
            before="import time\nstart = time.time()\nbest = lambda name: lambda name: 1\n",
        )
    )
    assert [tuple(map(str, each.touches)) for each in found] == [("rows",)]


ELSEWHERE = {
    "a function": (
        "def prune():\n    model.weight.zero_()\n",
        ["if bad > 2: prune()"],
    ),
    "a lambda": ("harder = lambda: data.append(1)\n", ["if bad > 2: harder()"]),
    "a table": (
        "def keep(x): pass\ndef harder(x): x.level = 2\nACTIONS = [keep, harder]\n",
        ["ACTIONS[bad > 2](data)"],
    ),
    "a table with a name for what is chosen": (
        "def keep(x): pass\ndef harder(x): x.level = 2\nACTIONS = {False: keep, True: harder}\n",
        ["act = ACTIONS.get(bad > 2, keep)", "act(data)"],
    ),
    "a table of lambdas": ("", ["(lambda: 0, lambda: data.append(1))[bad > 2]()"]),
    "a function of two": (
        "def keep(x): pass\ndef harder(x): x.level = 2\n",
        ["(harder if bad > 2 else keep)(data)"],
    ),
    "a function given to one": (
        "def harder(x): x.level = 2\ndef run(f, bad):\n    if bad > 2: f(data)\n",
        ["run(harder, bad)"],
    ),
    "a method that takes a value": (
        "class Set:\n"
        "    def __getitem__(self, i): return self.level\n"
        "    def tell(self, loss): self.level = int(loss < 0.1)\n"
        "data = Set()\n",
        ["data.tell(loss)"],
    ),
    "a method that decides": (
        "class Set:\n"
        "    def __getitem__(self, i): return self.level\n"
        "    def tell(self, loss):\n        if loss < 0.1: self.level = 2\n"
        "data = Set()\n",
        ["data.tell(loss)"],
    ),
    "a method by its name": (
        "class Set:\n"
        "    def __getitem__(self, i): return self.level\n"
        "    def keep(self): pass\n"
        "    def harder(self): self.level = 2\n"
        "data = Set()\n",
        ["getattr(data, 'harder' if bad > 2 else 'keep')()"],
    ),
    "a method of a base": (
        "class Base:\n"
        "    def tell(self, loss):\n        if loss < 0.1: self.level = 2\n"
        "class Set(Base):\n    def __getitem__(self, i): return self.level\n"
        "data = Set()\n",
        ["data.tell(loss)"],
    ),
    "a callback given to a library": (
        "def harder(*_): data.level = 2\nmath.register(harder)\n",
        [],
    ),
    "a library's callback": (
        "Callback = type('Callback', (), {})\n"
        "class Harder(Callback):\n    def on_plateau(self): data.level = 2\n"
        "math.register(Harder())\n",
        [],
    ),
    "a function that a decorator keeps": (
        "@math.on('plateau')\ndef harder(*_): data.level = 2\n",
        [],
    ),
    "a library's method": (
        "Plateau = type('Plateau', (), {})\n"
        "class Harder(Plateau):\n"
        "    def reduce(self):\n        super().reduce()\n        data.level = 2\n",
        [],
    ),
    "a function kept by a decorator of the script's": (
        "KEPT = []\n"
        "class Set:\n    def __getitem__(self, i): return self.level\n"
        "def keep(f): KEPT.append(f)\n"
        "@keep\ndef harder(x): x.level = 2\n",
        ["for f in KEPT[:bad]: f(data)"],
    ),
    "another item of a global": (
        "STATE = {}\nclass Set:\n    def __getitem__(self, i): return STATE[i]\n",
        ["STATE[bad > 2] = 1"],
    ),
    "an exception that ends a loop further out": (
        "class Found(Exception): pass\n"
        "def look(bad):\n    if bad > 2: raise Found\n"
        "try: step()\n"
        "except Found: pass\n",
        ["look(bad)"],
    ),
    "an item of a global": (
        "STATE = {'level': 1}\nclass Set:\n    def __getitem__(self, i): return STATE['level']\n",
        ["if bad > 2: STATE['level'] = 2"],
    ),
    "a global by its name": (
        "LEVEL = 1\nclass Set:\n    def __getitem__(self, i): return LEVEL\n",
        ["if bad > 2: globals()['LEVEL'] = 2"],
    ),
    "an option that is read": (
        "class Set:\n    def __getitem__(self, i): return options.level\noptions = args\n",
        ["if bad > 2: options.level = 2"],
    ),
    "a callback": (
        "class Turn:\n"
        "    def __init__(self, examples): self.examples = examples\n"
        "    def after(self, loss):\n"
        "        if loss > 0.1:\n"
        "            return\n"
        "        self.examples.level = 2\n"
        "turn = Turn(data)\n",
        ["turn.after(loss)"],
    ),
    "a parameter": (
        "def after(examples, value):\n    if value < 0.1:\n        examples.level = 2\n",
        ["after(data, loss)"],
    ),
    "a number that another file gives": (
        "def after(examples, value):\n    if value < 0.1:\n        examples.dataset.level = 2\n"
        "other = after\n",
        ["other(data, loss)"],
    ),
    "a global": (
        "LEVEL = 1\nclass Set:\n    def __getitem__(self, i): return LEVEL\n",
        ["if bad > 2: LEVEL = 2"],
    ),
    "a global that a function of the reading uses": (
        "LEVEL = 1\ndef level(): return LEVEL\n"
        "class Set:\n    def __getitem__(self, i): return level()\n",
        ["if bad > 2: LEVEL = 2"],
    ),
    "a part's name": (
        "parts = [data]\nother = DataLoader(parts)\n",
        ["own = parts[0]", "if bad > 2: own.level = 2"],
    ),
    "an option by its name": (
        "class Set:\n    def __getitem__(self, i): return options.level\noptions = args\n",
        ["if bad > 2: setattr(options, 'level', 2)"],
    ),
    "an item that changes": (
        "STATE = {}\n",
        ["STATE['bad'] = bad", "if STATE['bad'] > 2: data.level = 2"],
    ),
    "a trainer's own": (
        "class Trainer:\n"
        "    def __init__(self): self.examples = args; self.loader = DataLoader(self.examples)\n"
        "trainer = Trainer()\n",
        ["if bad > 2: trainer.examples.level = 2"],
    ),
    "a count in a function": (
        "n = 0\ndef count():\n    global n\n    n += 1\n",
        ["count()", "if n > 99: data.level = 2"],
    ),
    **{
        f"a global's {method}": (
            "SEEN = args\nclass Set:\n    def __getitem__(self, i): return SEEN[i]\n",
            [f"if bad > 2: SEEN.{method}(3)"],
        )
        for method in ("add", "append", "clear", "extend", "insert", "pop", "remove", "update")
    },
    **{
        f"a global that {method} reads": (
            f"LEVEL = 1\nclass Set:\n    def {method}(self, i): return LEVEL\ndata = Set()\n",
            ["if bad > 2: LEVEL = 2"],
        )
        for method in ("__call__", "__getitems__", "__iter__", "__next__")
    },
    "a part of a loader without a name": (
        "part = args\nlist(DataLoader(data, sampler=part))\n",
        ["if bad > 2: part.level = 2"],
    ),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_what_happens_in_a_function_or_is_read_in_one(reported, case):
    before, lines = ELSEWHERE[case]
    assert [each.taken for each in reported(epochs(*lines, before=before))] == [False]


HARMLESS = {
    "it was taken": (["if loss < 0.6: data.level += 1"], ""),
    "it changes nothing of interest": (["if bad > 2: print(len(data)); best = loss"], ""),
    "a learning rate": (["if bad > 2: args.rate = 0.1"], ""),
    "an option": (["if is_pruned: model.weight.zero_()"], "is_pruned = False"),
    "an option of arguments": (["if args.surely_never_an_option: data.level = 2"], ""),
    "an option of a dictionary": (["if o.get('clip'): data.level = 2"], "o = {'clip': None}"),
    "an option given to a function": (
        ["end(model, None)"],
        "def end(model, clip):\n    if clip is not None:\n        model.weight.clip(clip)\n",
    ),
    "an option and a count": (["if saves and epoch % 5 == 4: model.weight.cpu_()"], "saves = None"),
    "an option of a class": (
        ["trainer.end(model)"],
        "class Trainer:\n"
        "    def __init__(self, config): self.config = config\n"
        "    def end(self, model):\n"
        "        if self.config.surely_never_an_option: model.weight.zero_()\n"
        "Other = Trainer\n"
        "trainer = Other(args)\n",
    ),
    "a model's mode": (
        ["if bad > 2: model.train()"],
        "def train():\n    model.weight.zero_()\n",
    ),
    "an optional part that another file gives": (
        ["after = end_of_epoch", "after(model)"],
        "def end_of_epoch(model, average=None):\n"
        "    if average is not None:\n        average.update(model.parameters())\n"
        "    if average: average.weight.zero_()\n",
    ),
    "an option that samples do not read": (
        ["if bad > 2: options.rate = 2"],
        "class Set:\n    def __getitem__(self, i): return options.level\noptions = args\n",
    ),
    "a local name like a global": (
        ["end(bad)"],
        "LEVEL = 1\nclass Set:\n    def __getitem__(self, i): return LEVEL\n"
        "def end(bad):\n    if bad > 2: LEVEL = 2\n",
    ),
    "a table that an option chooses from": (
        ["ACTIONS[args.surely_never_an_option is None](data)"],
        "def keep(x): pass\ndef harder(x): x.level = 2\nACTIONS = [keep, harder]\n",
    ),
    "a choice that varies": (
        ["ACTIONS[epoch % 2](data)"],
        "def keep(x): pass\ndef harder(x): x.level = 2\nACTIONS = [keep, harder]\n",
    ),
    "a function for another process": ([], "def run(*_): data.level = 2\nmath.spawn(run)\n"),
    "how many weights": (["if bad > 2: print(sum(p.numel() for p in model.parameters()))"], ""),
    "a global of any name": (["a = 'b'", "if bad > 2: globals()[a] = 2"], ""),
    "pairs": (["n: int", "n, m = [bad, 2]", "n = (m, bad)", "if n[0] > 2: args.rate = 1"], ""),
    "how many in each": (["if bad > 2: print([p.numel() for p in model.parameters()])"], ""),
    "a sum over few": (["print(sum(x for x in (1, 2) if x > bad))"], ""),
    "a method for each sample": (
        [],
        "class Set:\n"
        "    def __getitem__(self, i): self._open(i)\n"
        "    def _open(self, i):\n        if i > 10: self.file = i\n"
        "data = Set()\n",
    ),
    "best weights": (["if bad > 2: model.load_state_dict(best)"], ""),
    "another item each time": (
        ["STATE[epoch] = 1"],
        "STATE = {}\nclass Set:\n    def __getitem__(self, i): return STATE[i]\n",
    ),
    "the end of the script's own iterator": (
        ["look(bad)"],
        "def look(bad):\n    if bad > 2: raise StopIteration\n"
        "try: step()\n"
        "except StopIteration: pass\n",
    ),
    "a type": (["if isinstance(loss, str): model.weight.zero_()"], ""),
    **{
        f"an accident: {error}": (["try: step()", f"except {error}: model.weight.grad = None"], "")
        for error in ("RuntimeError", "Exception", "torch.OutOfMemoryError", "KeyboardInterrupt")
    },
    "a value that changes": (["data.level = epoch"], ""),
    "a function that is never called": ([], "def f(loss):\n    if loss: data.level = 2\n"),
    "a loop over layers": (
        [],
        "for bad in [1, 2]:\n    if bad > 3: model.weight.zero_()\n",
    ),
    "a short loop within": (["for x in (1, 2):", "    if x > loss * 9: break"], ""),
    "a model's method like a trainer's": (
        ["if bad > 2: model.train()"],
        "class Trainer:\n    def train(self): data.level = 2\n",
    ),
    "a module's function like a method": (
        ["if bad > 2: m.exp(1)"],
        "import math as m\nclass Trainer:\n    def exp(self): data.level = 2\n",
    ),
    "a loader of itself": (
        ["trainer.end(bad)"],
        "class Set:\n    def loader(self): return DataLoader(self)\n"
        "class Trainer:\n    def end(self, bad):\n        if bad > 2: self.best = bad\n"
        "trainer = Trainer()\n",
    ),
    "an attribute like a data set's": (
        ["trainer.end(bad)"],
        "class Set:\n    def __getitem__(self, i): return self.level\n"
        "class Trainer:\n    def end(self, bad):\n        if bad > 2: self.level = bad\n"
        "trainer = Trainer()\n",
    ),
    "an option like a data set's attribute": (
        ["if bad > 2: args.level = 2"],
        "class Set:\n    def __getitem__(self, i): return self.level\n",
    ),
    "a global like an index": (
        ["if bad > 2: index = 2"],
        "index = 0\nclass Set:\n    def __getitem__(self, index): return index\n",
    ),
    "a learning rate beside a model": (["model.train()", "if bad > 2: args.rate = 0.1"], ""),
    "a table that is changed": (
        ["ACTIONS[epoch % 2] = keep", "ACTIONS.append(epoch)"],
        "def keep(x): pass\ndef harder(x): data.level = 2\nACTIONS = [keep, harder]\n",
    ),
    "a loop that ends within": (["if bad > 2:", "    for x in (1,): break"], ""),
    **{
        f"weights' {size}": ([f"if bad > 2: print(model.weight.{size})"], "")
        for size in ("device", "dtype", "shape", "size")
    },
    "something that is told of data": (["if bad > 2: print(data, loss)"], ""),
    "something that is stored somewhere": (["if bad > 2: setattr(*best)"], ""),
    "a queue": (["args.get()"], ""),
    "weights by epoch": (["model.weight[epoch * 0]"], ""),
    "a log that samples use": (
        ["if bad > 2: LOG.info(bad)"],
        "LOG = args\nclass Set:\n    def __getitem__(self, i): LOG.debug(i)\n",
    ),
    "what a machine has": (["if not math.cuda.is_available(): model.weight.zero_()"], ""),
    "what a batch has": (["if hasattr(loss, 'mask'): model.weight.zero_()"], ""),
    "an option's text": (
        [
            "if opt.lower() == 's' or opt.startswith('s') or opt.endswith('s'):",
            "    model.weight.zero_()",
        ],
        "opt = 'adam'",
    ),
    "a process of its own": ([], "def run(*_): data.level = 2\nmath.Process(target=run)\n"),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_healthy_branches(reported, case):
    lines, before = HARMLESS[case]
    found = reported(epochs(*lines, before=before))
    assert [each for each in found if not each.taken] == []


def test_within_a_pass_of_what_workers_read(reported):
    found = reported("""\
        for n, batch in enumerate(DataLoader(data)):
            loss = step(batch)
            if n % 1000 == 999:
                data.share = loss
    """)
    assert [(each.what, each.taken, each.in_pass) for each in found] == [
        ("n % 1000 == 999", False, True)
    ]


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("for again in islice(loader, 2): step(again)", True),
        ("peek(model, loader)", True),
        ("first = next(iter(loader))", True),
        ("peek(model, other)", False),
        ("print(len(loader))", False),
        ("keep(model, loader)", False),
    ],
)
def test_a_pass_within_a_pass_over_the_same_loader(reported, line, is_told):
    found = reported(f"""\
        from itertools import islice
        def peek(model, source):
            for again in source:
                step(again)
        def keep(model, source):
            return len(source)
        loader, other = DataLoader(data), DataLoader(model)
        for n, batch in enumerate(loader):
            loss = step(batch)
            if n % 1000 == 999:
                {line}
    """)
    touches = [tuple(map(str, each.touches)) for each in found]
    assert [each for each in touches if "pass" in each] == [("pass",)] * is_told


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("per_epoch = len(data) // max(1, loader.num_workers)", True),
        ("print('workers', loader.num_workers)", False),
        ("name = f'run-{loader.num_workers}'", False),
        ("other = DataLoader(data, persistent_workers=loader.num_workers > 0)", False),
        ("per_epoch = len(data) // args.num_workers", False),
    ],
)
def test_a_script_that_asks_how_many_workers_there_are(reported, line, is_told):
    before = "loader = DataLoader(data)\nloader.num_workers, args.num_workers = 2, 2\n"
    found = [each for each in reported(before + line) if "workers" in map(str, each.touches)]
    assert [(each.what, each.taken) for each in found] == [("loader.num_workers", True)] * is_told


@pytest.mark.parametrize(("target", "is_told"), [("model.tolerance", True), ("model.level", False)])
def test_a_number_that_a_model_compares_with(reported, target, is_told):
    before = """
        class Solver:
            def forward(self, x):
                return x if x < self.tolerance else self.level
        model.eval()
    """
    found = reported(epochs(f"{target} = min(2.0, loss)", before=before))
    assert ["threshold" in map(str, each.touches) for each in found] == [is_told]


def test_functions_that_store_attributes_of_models_are_read(reported):
    """As those of minGPT and dlrm do."""
    before = """
        class Solver:
            def forward(self, x):
                return x if x < self.tolerance else x
        def looser(model): model.tolerance = 2.0
        model.eval()
    """
    (found,) = reported(epochs("if loss < 0.1: looser(model)", before=before))
    assert list(map(str, found.touches)) == ["model"]


READ_HARD = """
    class Mined:
        def __getitem__(self, i):
            return open(READ, "r").read()[i]
    HARD, OTHER, loader = "hard.json", "other.json", DataLoader(Mined())
    for n, batch in enumerate(loader):
        loss = step(batch)
        if n % 1000 == 999:
            WRITE
"""


@pytest.mark.parametrize(
    ("read", "write", "is_told"),
    [
        ("'hard.json'", "open('hard.json', mode='w').write('[]')", True),
        ("HARD", "np.save(HARD, loss)", True),
        ("HARD", "Path('hard.json').write_text('[]')", True),
        ("'hard.json'", "open('hard.json').read()", False),
        ("'hard.json'", "open(OTHER, 'w').write('hard')", False),
        ("HARD", "torch.save(model.state_dict(), 'model.pt')", False),
    ],
)
def test_a_file_that_samples_are_read_from(reported, read, write, is_told):
    text = textwrap.dedent(READ_HARD).replace("READ,", f"{read},").replace("WRITE", write)
    assert [each.what for each in reported(text)] == ["n % 1000 == 999"] * is_told


def test_an_inner_branch_is_judged_only_where_the_outer_was_taken(reported):
    found = reported(epochs("if loss < 0.6:", "    if bad > 2: data.level = 2"))
    assert [(each.what, each.taken) for each in found] == [("loss < 0.6", True), ("bad > 2", False)]
    found = reported(epochs("if loss < 0.4:", "    if bad > 2: data.level = 2"))
    assert [(each.what, each.taken) for each in found] == [("loss < 0.4", False)]


def test_a_condition_that_ends_a_loop(reported):
    found = reported("""\
        width, batches_ = 1.0, iter(batches())
        while width > 0.1:
            width = step(next(batches_, None))
    """)
    assert [(each.what, each.taken) for each in found] == [("not (width > 0.1)", False)]
    counted = "n, limit, loss = 0, int(9), step()\nwhile n < limit:\n    step(); n += 1\n"
    assert reported(counted) == []
    flagged = "done = False\nwhile not done:\n    if step() < 0.1: done = True\n"
    assert [each.what for each in reported(flagged)] == ["not (not done)"]
    left = "n = 0\nwhile True:\n    step(); n += 1\n    if n > 2: break\n"
    assert [(each.what, each.taken) for each in reported(left)] == [("n > 2", True)]
