"""Rewritten programs do what they did, on the same lines, as long as no loop is to end early."""

# ruff: noqa: E501
# A program a line reads better than a wrapped one.
from __future__ import annotations

import ast
import contextlib
import io
import sys
import textwrap
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.collectors.script.child.shortening import (
    branches,
    loop_imports,
    loop_rewriting,
    loops,
)
from gpuadvisor.collectors.script.child.shortening.loop_rewriting import compiled, rewrite
from gpuadvisor.collectors.script.child.shortening.progress import Progress
from gpuadvisor.collectors.script.specification import Shortening


@pytest.fixture(autouse=True)
def _provided(monkeypatch):
    monkeypatch.setattr(loops, "_loops", None)
    yield
    import builtins

    for name in (loops.LOOP, loops.WHILE, branches.BRANCH, branches.VALUE):
        vars(builtins).pop(name, None)


def output(code):
    """Return what a program prints, and the exception that ends it, if one does."""
    names = {"__name__": "program"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(code, names)
        except Exception as error:
            print(repr(error))
            trace = error.__traceback__
            while trace:
                if trace.tb_frame.f_code.co_filename == "program.py":
                    print(trace.tb_lineno)
                trace = trace.tb_next
    return printed.getvalue()


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def lines(code, whiles):
    """Return the lines of each function, and those that begin a `while` statement in any case."""
    return {
        (each.co_name, each.co_firstlineno): whiles
        | {line for _, _, line in each.co_lines() if line is not None}
        for each in codes(code)
    }


def agree(source):
    """Rewrite a program and compare it with itself, run with nothing to count."""
    watch = loops.begin(Shortening("", batches=1, epochs=1), Progress())
    done = rewrite(source, "program.py", watch.count)
    watch.add(done.sites, done.learns, done.marks)
    code, original = compiled(done, "program.py"), compile(source, "program.py", "exec")
    whiles = {node.lineno for node in ast.walk(done.tree) if isinstance(node, ast.While)}
    now, before = lines(code, whiles), lines(original, whiles)
    common = now.keys() & before.keys()  # code that is never reached is kept in one or the other
    assert {key: now[key] for key in common} == {key: before[key] for key in common}
    assert common >= {key for key in before if not key[0].startswith("<gen")}
    assert output(code) == output(original)


LATE_BRANCHES = """
class Thing:
    weight, level, items = 0, 1, []
    def harder(self): self.level += 1

def DataLoader(data): return range(5)
data, model = Thing(), Thing()

def turn(data, x):
    'A docstring.'
    global total
    if x > 1: return
    total = x; data.level = x
    if data.level: data.harder(); return 1
    return x and data.items.pop() or (data.items.append(x) if x > 7 else None)

total, n = 0, 0
for x in DataLoader(data):
    total += x; n = x
    if total > 3 and x: data.level += 1
    elif total > 1: model.weight = x
    else:
        data.level = 0
    try: turn(data, x); [][0 if x != 3 else 1 // 0]
    except IndexError: data.level = 2; print('index')
    except (ZeroDivisionError, KeyError) as error: model.weight -= 1; print(error)
    else: pass
    finally: print(x)
    while n > 2:
        n -= 1; data.items.append(n)
        if n == 3: continue
        model.weight += n; print(model.weight)
    else: print('no more')
    print(x > 2 and data.items.append(x), data.items.pop() if x > 3 else data.items)
    data.level = 5 if total > 5 else data.level
    data.items[:], [model.weight, data.level] = [x], (x, 1)
    if total < 0: continue
    data.harder(); print(data.level, data.items)
    if total > 8: data.level = 9; break
    print((lambda: data.items.append(n))(), [data.items.pop() for _ in range(1) if x], total)
else: print('whole')
print(vars(data), vars(model), data.items, total)
"""
PROGRAMS = {
    "late branches": LATE_BRANCHES,
    "several on a line": "for i in range(2): print(i); x = [print(j) for j in range(2)]\n",
    "line continuation": "for i \\\n   in \\\n  range(\n2): \\\n  print(i)\n",
    "tabs": "if 1:\n\tfor i in range(2):\n\t\tprint(i)\n",
    "form feed": "\f\nfor i in range(2):\n\f    print(i)\n",
    "carriage returns": "for i in range(2):\r\n    print(i)\r\nwhile i:\r\n    print(i); i -= 1\r\n",
    "byte order mark": b"\xef\xbb\xbffor i in range(2): print('\xc3\xa4')\n",
    "coding cookie": b"# -*- coding: latin-1 -*-\nfor i in range(2): print('\xe4', i)\n",
    "coding cookie on line 2": b"#!/usr/bin/env python\n# coding: cp1252\nfor i in range(2): print('\x80')\n",
    "wide characters before": "ä = 'ä€😀'; x = ['😀' for y in ä]\nfor ö in range(len(ä)): print(ä, ö)\n",
    "nested quotes": "for i in range(2): print(f'{i!r:>{3}} {\"a\" + str(i)}')\n",
    "lambda": "for i in map(lambda x: x + 1, range(3)): print(i)\n",
    "lambda alone": "for i in (lambda: range(3))(): print(i)\n",
    "generator": "for i in (j for j in range(3)): print(i)\n",
    "starred": "a, b = [1], (2,)\nfor x in *a, *b: print(x)\n",
    "tuple": "for x in 1, 2: print(x)\n",
    "tuple in parentheses": "for x in (1, 2): print(x)\n",
    "unpacking": "for i, (a, *b) in enumerate(zip(range(3), range(3))): print(i, a, b)\n",
    "else": "for i in range(2): print(i)\nelse: print('else')\nwhile i: print(i); i -= 1\nelse: print(i)\n",
    "break": "for i in range(9):\n  print(i)\n  if i == 3: break\nelse: print('never')\n",
    "continue": "i = 0\nwhile i < 9:\n  i += 1\n  if i % 2: continue\n  print(i)\n",
    "walrus": "it = iter(range(3))\nwhile (x := next(it, None)) is not None: print(x)\n",
    "walrus in for": "for i in (r := range(3)): print(i, r)\n",
    "or": "a, b = 0, 2\nwhile a or b: print(a, b); b -= 1\n",
    "ternary": "a = 3\nwhile a if a > 1 else False: print(a); a -= 1\n",
    "endless": "i = 0\nwhile True:\n  print(i)\n  i += 1\n  if i > 3: break\nprint('end')\n",
    "endless with else": "i = 0\nwhile True:\n  print(i)\n  i += 1\n  if i > 3: break\nelse: print(1)\n",
    "condition on more lines": "i = 3\nwhile (\n  i\n  > 0\n):\n  print(i)\n  i -= 1\n",
    "target of an attribute": "class A: pass\na = A()\nfor a.x in range(2): print(a.x)\n",
    "target of an item": "d = {}\nfor d['x'] in range(2): print(d)\n",
    "not iterable": "x = 1\nfor i in x: print(i)\n",
    "not iterable, in a bar": "for i in enumerate(1): print(i)\n",
    "fails in the iterable": "def f():\n  yield 1\n  1 / 0\nfor i in f(): print(i)\n",
    "fails in the body": "for i in range(2):\n  print(1 / i)\n",
    "old sequence protocol": (
        "class A:\n  def __getitem__(self, i):\n    if i > 2: raise IndexError\n    return i\n"
        "for i in A(): print(i)\n"
    ),
    "generator function": (
        "def f(n):\n  for i in range(n):\n    got = yield i\n    print(got)\n  return 'end'\n"
        "def g(): print((yield from f(3)))\nfor i in g(): print(i)\n"
    ),
    "class body": "class A:\n  for i in range(2): print(i)\n  while i: i -= 1; print(i)\nprint(A.i)\n",
    "private names": "class A:\n  def f(self):\n    for __i in range(2): print(__i)\nA().f()\n",
    "nested functions": (
        "def f():\n  x = 0\n  def g():\n    nonlocal x\n    while x < 3: x += 1; print(x)\n  g()\n"
        "f()\n"
    ),
    "recursion": "def f(n):\n  i = 0\n  while i < n:\n    i += 1; print(i); f(n - 1)\nf(3)\n",
    "async": (
        "import asyncio\nasync def a():\n  for i in range(2): await asyncio.sleep(0); print(i)\n"
        "  for i in range(2): print(i)\n  async for i in b(): print(i)\n"
        "async def b():\n  for i in range(2): yield i\nasyncio.run(a())\n"
    ),
    "globals": "for i in range(2): print(sorted(k for k in globals() if k[0] != '_'))\n",
    "locals of a while": "def f():\n  i = 2\n  while i: i -= 1; print([k for k in locals() if k[0] != '_'])\nf()\n",
    "match": "for i in range(3):\n  match i:\n    case 1: print('one')\n    case x: print(x)\n",
    "try": "for i in range(3):\n  try: continue\n  finally: print(i)\n",
    "future": "from __future__ import annotations\nx: Nonsense = 1\nfor i in range(2): print(i)\n",
    "docstring": "'''Doc.'''\nfor i in range(2): print(__doc__)\n",
    "while with a changing limit": "i, n = 0, 5\nwhile i < n: i += 1; n -= 1; print(i, n)\n",
    "an empty file": "",
    "an item is let go": (
        "import weakref\nclass A: pass\n"
        "def f():\n  for _ in range(2): yield A()\n"
        "for a in f():\n  r = weakref.ref(a)\n  del a\n  print(r())\n"
    ),
    "closed by break": (
        "def f():\n  try:\n    for i in range(5): yield i\n  finally: print('closed')\n"
        "for i in f():\n  if i: print(i); break\nprint('after')\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_it_did(name):
    agree(PROGRAMS[name])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of Python 3.12")
def test_nested_quotes_of_python_3_12():
    agree("for i in range(2): print(f'{'a' + f'{i}'}')\ntype A = int\nclass B[T]: pass\n")


NOT_REWRITTEN = {
    "forward of a module": "class M:\n  def forward(self, x):\n    for l in self.layers: x = l(x)\n",
    "jit": "@torch.jit.script\ndef f(x):\n  for i in range(3): x = g(x)\n",
    "triton": "@triton.autotune(configs=[])\n@triton.jit\ndef k(n):\n  for i in range(0, n): load(i)\n",
    "numba": "@njit(parallel=True)\ndef f(n):\n  for i in prange(n): g(i)\n",
    "compiled": "@torch.compile\ndef f(x):\n  for i in range(3): x = g(x)\n",
    "compiled by name": "def f(x):\n  for i in range(3): x = g(x)\nf = torch.compile(f)\n",
    "literal list": "for phase in ['train', 'val']: run(phase)\n",
    "literal list, counted": "for i, phase in enumerate(('train', 'val')): run(phase)\n",
    "view of a dictionary": "for name, model in models.items(): run(model)\n",
    "nothing called": "for i in range(9): x[i] = i\n",
    "own generator": "def cycle(l):\n  while True:\n    for x in l: yield f(x)\n",
    "comprehension": "x = [f(i) for i in range(9)]\n",
    "left by return only": "def f():\n  while True:\n    step()\n    if g(): return\n",
    "inner break": "while True:\n  for i in [1]: break\n  f()\n",
    "class body": "class A:\n  for i in range(2): print(i)\n",
    "awaiting": "async def f():\n  for i in range(9): await g(i)\n",
}


@pytest.mark.parametrize("name", NOT_REWRITTEN)
def test_what_is_traced_or_needed_whole_is_left_alone(name):
    source = NOT_REWRITTEN[name]
    done = rewrite(source, "program.py")
    assert done.sites == ()
    assert ast.dump(done.tree, include_attributes=True) == ast.dump(
        ast.parse(source), include_attributes=True
    )


def test_places_are_those_of_the_file():
    done = rewrite("x = 1\n\nfor i in range(\n 3): f()\nwhile g(): f()\n", "/a/b/train.py")
    assert [site.place for site in done.sites] == ["train.py, line 3", "train.py, line 5"]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("for i in range(9): optimizer.step()", True),
        ("for i in range(9): agent.update_policy()", True),
        ("def a(): loss.backward()\ndef b(): a()\nfor i in range(9): b()", True),
        ("for i in range(9): losses[i] = model(x)", False),
    ],
)
def test_what_is_called_says_whether_a_step_is_to_come(source, says):
    assert rewrite(source, "a.py").sites[-1].says_step is says


DEEP = f"f = lambda n: {' + '.join(['n'] * 600)}\nfor i in range(9): optimizer.step()\n"
"""Deeper than Python's functions may call each other."""


class Told(list):
    def send(self, event, /, **fields):
        self.append(fields["detail"])


def fails(source, path):
    """Stands for marks of which no Python comes."""
    raise SyntaxError


LOOP_OF_A_FILE = "for i in range(9): f()\n"


@pytest.mark.parametrize(
    ("source", "generators", "read", "told"),
    [
        (DEEP, False, None, True),
        (DEEP, True, None, False),
        (LOOP_OF_A_FILE, False, None, False),
        (LOOP_OF_A_FILE, False, fails, True),
    ],
)
def test_branches_that_cannot_be_marked_are_told(source, generators, read, told):
    said = Told()
    done = rewrite(source, "/a/b.py", 0, 0, generators, read, said)
    assert len(done.sites) == 1
    assert ["watch the branches of b.py" in each for each in said] == [True] * told


@pytest.mark.parametrize("source", ["for i in range(9) f()", "for i in range(9): f()\nreturn\n"])
def test_mistakes_are_for_the_interpreter_to_tell(monkeypatch, source):
    said, made = Told(), []
    monkeypatch.setattr(loop_imports, "take_over_main", made.append)
    monkeypatch.setattr(loop_imports, "rewrite_spawned", made.append)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    shortening = Shortening("", batches=4, steps=4, epochs=2, later=0)
    loop_imports.install(shortening, Progress(), said)
    assert made[0](source.encode(), "/a/b.py", False) is None
    assert said == []
    monkeypatch.setattr(loop_rewriting, "compiled", fails)
    assert made[0](LOOP_OF_A_FILE.encode(), "/a/b.py", False) is None
    assert ["end the loops of b.py early: SyntaxError" in each for each in said] == [True]


# Programs of nested loops over counters, each of which prints what it sees.

simple = st.sampled_from(["print('p', n)", "n += 1", "continue", "break", "print(n)", "q(n)"])


@st.composite
def statements(draw, depth=0):
    kinds = ["for", "while", "if", "try", "simple"] if depth < 3 else ["simple"]
    text = ""
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(kinds))
        if kind == "simple":
            statement = draw(simple)
        else:
            body = textwrap.indent(draw(statements(depth + 1)), "  ")
            other = f"\nelse:\n{textwrap.indent(draw(statements(depth + 1)), '  ')}"
            other = other if draw(st.booleans()) and depth == 0 else ""
            count = draw(st.integers(0, 3))
            statement = {
                "for": f"for i{depth} in {draw(st.sampled_from(ITERABLES)).format(count)}:\n"
                       f"{body}\n  q(i{depth})",
                "while": f"w{depth} = 0\nwhile (w{depth} := w{depth} + 1) < {count}:\n{body}",
                "if": f"if n % {count + 1}:\n{body}",
                "try": f"try:\n{body}\nfinally:\n  q(9)",
            }[kind] + (other if kind in ("for", "while") else "")  # fmt: skip
        text += statement + "\n"
    return text.rstrip("\n")


ITERABLES = [
    "range({0})", "enumerate(range({0}))", "iter(range({0}))", "zip(range({0}), [1, 2])",
    "(k for k in range({0}))", "list(range({0}))", "reversed(range({0}))", "map(str, range({0}))",
]  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(statements(), st.booleans())
def test_any_program_does_what_it_did(body, in_function):
    # `break` and `continue` need a loop around them; `n` bounds the work.
    body = f"for z in range(2):\n{textwrap.indent(body, '  ')}\n  q(z)"
    body = f"n = 0\n{body}\nprint(n)"
    if in_function:
        body = f"def f():\n{textwrap.indent(body, '  ')}\nf()"
    agree(f"def q(x):\n  global c\n  c += 1\n  print(x)\n  assert c < 500\nc = 0\n{body}\n")
