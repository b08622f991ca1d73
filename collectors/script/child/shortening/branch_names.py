"""What a file's names stand for, by its text: data, models, and what changes during a run.

Names are taken for what they are called, wherever in the file: a local `data` and an attribute
`data` are one. That is coarse, and enough to know which branches are worth a look.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from gpuadvisor.collectors.script.child.shortening import branch_models, branch_processes
from gpuadvisor.collectors.script.child.shortening.branch_clock import Clock
from gpuadvisor.collectors.script.child.shortening.branch_errors import Errors
from gpuadvisor.collectors.script.child.shortening.branch_loaders import Loaders
from gpuadvisor.collectors.script.child.shortening.branch_optimizers import Optimizers
from gpuadvisor.collectors.script.child.shortening.branch_samplers import Samplers
from gpuadvisor.collectors.script.child.shortening.syntax import (
    DEFINITIONS,
    LOOPS,
    MUTATING,
    Function,
    asked,
    assigned,
    bare_names,
    chain,
    file_text,
    last_name,
    made_of,
    makes_loader,
    named_part,
    own_nodes,
    stored_names,
    written_files,
)
from gpuadvisor.domain.rehearsal import Touch

DATA_WORDS = frozenset({"dataloader", "dataset", "environ"})
"""Words in names of data, and the environment, of which workers have a copy."""
STEADY_CALLS = frozenset({"hasattr", "is_available", "isinstance"})
"""What gives the same answer whenever it is asked."""
STEADY_METHODS = frozenset({"endswith", "get", "lower", "startswith"})
"""Methods whose answer depends on their owner and arguments alone."""
READING = frozenset({"__call__", "__getitems__", "__next__"})
"""Methods by which data sets and their parts give samples, beside those of any container."""
STORES = frozenset({"setattr", "setitem"})
"""Functions that store in what they are given: `object.__setattr__`, `operator.setitem`."""
_MOST_ROUNDS = 20
"""Assignments from name to name that are followed."""
_MOST_ALIASES = 3
"""Steps by which a name is followed to the function that it stands for: from a parameter to what
is chosen from a table, to the table, to the function."""


class Names:
    """What is known of the names in a script's files; read it before their trees are changed."""

    def __init__(self, *trees: ast.Module, modules: Iterable[str] = ()) -> None:
        """Read the trees of files that run together; `modules` are names of theirs."""
        nodes = [node for tree in trees for node in ast.walk(tree)]
        self._calls = [node for node in nodes if isinstance(node, ast.Call)]
        self._classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
        self._functions: dict[str, list[Function]] = {}
        """Functions by what calls of them look like: `train`, `.train` for a method, and the name
        of the class for `__init__`."""
        self._read_functions(nodes)
        self._own_modules: set[str] = set()
        """Names by which the files import each other."""
        self._modules: set[str] = set()
        """Names of a library's modules."""
        self._read_imports(nodes, set(modules))
        own = [node for node in self._calls if chain(node.func)[:1] != ["super"]]
        self._called = set(map(self._key, own))
        self._bound: list[tuple[str, ast.expr]] = []
        """Each name, attribute and parameter, and what it is given somewhere."""
        self._turning: set[str] = set()
        """Names, attributes and parameters whose value changes in the course of a run."""
        self._outside: set[str] = set()
        """Parameters that a library gives: optional parts, or what it counts."""
        self._aliases: dict[str, set[str]] = {}
        """Names that stand for functions of the files, with what calls of these look like."""
        self._read_bindings(nodes)
        self._files = {name: text for name, value in self._bound if (text := file_text(value))}
        self._clock = Clock(self._bound, self._functions)
        self._selves: dict[int, str] = {}
        """The class that a name `self` stands for in a data set's method, by the name's identity.
        Methods that run for each sample are left out: workers change what is their own."""
        self._locals: set[int] = set()
        """Identities of names that are stored in a function and are its own."""
        self._of_functions: dict[str, set[Touch]] = {}
        """What a call of a function touches."""
        self._models = self._model_names()
        self._data = self._data_names()
        every = [each for functions in self._functions.values() for each in functions]
        self._reading = [each for each in every if self._reads_samples(each)]
        """Functions that run for each sample."""
        self._read = self._read_by_samples(trees)
        """Global names that the reading of samples uses, attributes of them and of data sets, and
        names of files: `LEVEL`, `config.level`, `self.level`, `'hard.json'`."""
        self._thresholds = branch_models.compared(self._classes.values())
        self._optimizers = Optimizers(nodes, self._bound)
        self.samplers = Samplers(self._classes, self._bound, self._calls)
        self.loaders = Loaders(self._bound, self._functions, self._key)
        self.errors = Errors(nodes, self.loaders, self._functions, self._key, self._reading)
        self._read_locals(every)
        self._read_touches()
        self._callbacks = self._never_named()
        self._stopping = self._caught(nodes) & self._classes.keys()
        """Exceptions of the files' own that they catch."""

    # -- questions -------------------------------------------------------------------------

    def varies(self, test: ast.expr) -> bool:
        """Say whether what an expression gives can change in the course of a run."""
        if isinstance(test, ast.Call):
            called = last_name(test.func)
            if called in STEADY_CALLS:
                return False
            inputs = [*test.args, *(each.value for each in test.keywords)]
            if isinstance(test.func, ast.Attribute):
                inputs.append(test.func.value)
                steady = called in STEADY_METHODS
            else:
                steady = bool(inputs) and called not in self._functions
            return not steady or any(map(self.varies, inputs))
        if isinstance(test, ast.Name):
            return test.id in self._turning  # one of `_outside` is there, or is not
        if isinstance(test, ast.Attribute):
            is_path = isinstance(test.value, (ast.Name, ast.Attribute))  # options change as a whole
            return test.attr in self._turning or (not is_path and self.varies(test.value))
        is_number = isinstance(test, ast.Compare)
        is_number &= not any(isinstance(each, (ast.Is, ast.IsNot)) for each in ast.walk(test))
        if is_number and not self._outside.isdisjoint(bare_names(test)):
            return True
        return any(self.varies(n) for n in ast.iter_child_nodes(test) if isinstance(n, ast.expr))

    def decides(self, test: ast.expr) -> bool:
        """Say whether a value ends a loop with this condition, and not a count."""
        names = {last_name(node) for node in ast.walk(test)} & self._turning
        given = [value for name, value in self._bound if name in names]
        is_count = isinstance(test, ast.Compare) and all(isinstance(v, ast.Constant) for v in given)
        return self.varies(test) and not is_count

    def left(self, test: ast.expr | None) -> set[Touch]:
        """Return what a condition touches that leaves a loop."""
        is_timed = test is not None and self._clock.is_asked(test)
        return {Touch.ROWS, Touch.CLOCK} if is_timed else {Touch.ROWS}

    def touched(self, body: Iterable[ast.AST]) -> set[Touch]:
        """Return what statements may change of what settings rely on, and functions they name."""
        nodes = list(own_nodes(body))
        counted = {id(each) for node in nodes for part in asked(node) for each in ast.walk(part)}
        nodes = [node for node in nodes if id(node) not in counted]
        dropped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        found: set[Touch] = set()
        for node in nodes:
            found |= self._done(node, id(node) in dropped) | self._kept(node)
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                keys = self._standing_for(node)
                found = found.union(*(self._of_functions.get(key, ()) for key in keys))
        return found

    def _kept(self, node: ast.AST) -> set[Touch]:
        """Return what a node touches of optimizers, samplers and processes."""
        found = {Touch.STATE} if self._optimizers.replaces(node) else set()
        found |= {Touch.ORDER} if self.samplers.asks(node) else set()
        return found | {Touch.CHILDREN} if branch_processes.asks_children(node) else found

    def stored(self, target: ast.expr) -> set[Touch]:
        """Return what is changed where something is stored in a target."""
        if isinstance(target, ast.Tuple):
            return set().union(*map(self.stored, target.elts))
        names = self._chain(target)
        is_read = id(target) not in self._locals and self._is_read(names)
        found = {Touch.DATA} if is_read else set()
        if self._outside & set(names[:1]) and f"self.{''.join(names[1:])}" in self._read:
            found.add(Touch.DATA)  # a callback is given the data set
        if isinstance(target, (ast.Attribute, ast.Subscript)):
            owners = self._chain(target.value)
            found |= self._data_among(owners)
            if self._models & set(owners):
                found.add(Touch.MODEL)
                if isinstance(target, ast.Attribute) and target.attr in self._thresholds:
                    found.add(Touch.THRESHOLD)
        return found

    def chosen(self, node: ast.expr) -> set[Touch]:
        """Return what functions touch of which one is chosen from a table, if one is."""
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            table, key = node.value, node.slice
        elif isinstance(node, ast.Call) and last_name(node.func) == "get" and node.args:
            table, key = getattr(node.func, "value", node.func), node.args[0]
        else:
            return set()
        tables = [table, *(value for name, value in self._bound if name == last_name(table))]
        tables = [each for each in tables if isinstance(each, (ast.Dict, ast.List, ast.Tuple))]
        return self.touched(map(ast.Expr, tables)) if tables and self.varies(key) else set()

    def stops(self, body: Iterable[ast.AST]) -> bool:
        """Say whether statements may end loops further out, or the script."""
        nodes = list(own_nodes(body))
        exits = branch_processes.EXITS
        calls = [n for n in nodes if isinstance(n, ast.Call) and last_name(n.func) in exits]
        if any(not getattr(n.args[0], "value", 1) if n.args else True for n in calls):
            return True  # others tell of an error
        raised = (node.exc for node in nodes if isinstance(node, ast.Raise))
        return any(last_name(getattr(n, "func", n)) in self._stopping for n in raised)

    def is_data(self, node: ast.expr) -> bool:
        """Say whether an expression stands for a DataLoader, or something that one was given."""
        return bool(self._data_among(self._chain(node)))

    def is_callback(self, node: ast.AST) -> bool:
        """Say whether a library calls a function, if and when it sees fit."""
        return id(node) in self._callbacks

    def _done(self, node: ast.AST, is_dropped: bool) -> set[Touch]:
        """Return what a node touches by itself; of a call that is dropped nobody uses the value."""
        if isinstance(node, ast.Call):
            return self._call(node, is_dropped)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete)):
            targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
            return set().union(*map(self.stored, targets))
        if isinstance(node, ast.Attribute):
            return {Touch.MODEL} if branch_models.is_part(self._chain(node)) else set()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self._of_functions.get(f".{node.value}", set())  # by `getattr`, say
        return self.touched([ast.Expr(node.body)]) if isinstance(node, ast.Lambda) else set()

    def _call(self, node: ast.Call, is_dropped: bool) -> set[Touch]:
        called, given = last_name(node.func), node.args
        found: set[Touch] = set()
        if isinstance(node.func, ast.Attribute):
            in_place = called.endswith("_") and not called.startswith("_")
            if called in branch_models.CHANGES and self._models & set(chain(node.func.value)):
                found.add(Touch.MODEL)
            if is_dropped or called in MUTATING or in_place:
                names = self._chain(node.func.value)
                found |= self._data_among(names)
                if len(names) > 1 or called in MUTATING:
                    found |= {Touch.DATA} if self._is_read(names) else set()
        if called.strip("_") in STORES and len(given) > 1:
            found |= self.stored(named_part(given[0], given[1]))
        is_read = not self._read.isdisjoint(map(self._file, written_files(node)))
        return found | {Touch.DATA} if is_read else found

    def _file(self, node: ast.AST) -> str:
        """Return the name of a file as it is written there, or where it is given to a name."""
        return file_text(node) or self._files.get(last_name(node), " ")

    def _key(self, node: ast.AST) -> str:
        """Return the name of the files' own function that is called or named, or an empty one."""
        node = node.func if isinstance(node, ast.Call) else node
        name = last_name(node)
        if isinstance(node, ast.Attribute):
            owner = chain(node.value)
            is_model = name in branch_models.METHODS and owner != ["self"]
            if is_model or (owner and owner[0] in self._modules):
                return ""
            name = name if owner and owner[0] in self._own_modules else f".{name}"
        return name if name in self._functions else ""

    def _chain(self, node: ast.AST) -> list[str]:
        """Return the names on the way to a value, with its class for a data set's `self`."""
        names = chain(node)
        if names[:1] in (["self"], ["cls"]):
            root = next(each for each in ast.walk(node) if getattr(each, "id", "") == names[0])
            names[0] = self._selves.get(id(root), names[0])
        return names

    def _is_read(self, names: list[str]) -> bool:
        """Say whether the reading of samples uses a global name, or an attribute of it."""
        return ".".join(names[:2]) in self._read and names[0] != "self"

    def _data_among(self, names: list[str]) -> set[Touch]:
        """Return what an attribute path to something of a DataLoader's touches."""
        words = {word for name in names for word in name.lower().split("_")}
        if "sampler" in words:
            return {Touch.ORDER}
        known = {name for place, name in enumerate(names)
                 if name != "data" or place == 0 or names[0] == "self"}  # fmt: skip
        return {Touch.DATA} if known & self._data or words & DATA_WORDS else set()

    # -- reading ---------------------------------------------------------------------------

    def _read_functions(self, nodes: list[ast.AST]) -> None:
        owners = {id(each): owner for owner in self._classes.values() for each in owner.body}
        for node in nodes:
            if isinstance(node, (*DEFINITIONS, ast.Lambda)):
                owner = owners.get(id(node))
                name = getattr(node, "name", f"lambda {id(node)}")
                if owner is not None:
                    name = owner.name if name == "__init__" else f".{name}"
                self._functions.setdefault(name, []).append(Function(node, owner))

    def _read_imports(self, nodes: list[ast.AST], modules: set[str]) -> None:
        for node in nodes:
            for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
                is_own = alias.name.rpartition(".")[2] in modules
                if is_own or isinstance(node, ast.Import):
                    group = self._own_modules if is_own else self._modules
                    group.add((alias.asname or alias.name).partition(".")[0])

    def _repeated(self, nodes: list[ast.AST]) -> tuple[set[str], set[int]]:
        """Return the parameters that a library gives, and the identities of what runs in loops, or
        each time that a function does which is called in them or by a library."""
        outside = [
            each
            for name in self._functions.keys() - self._called
            for each in self._functions[name]
            if name not in self._classes
        ]
        own = {node.arg for each in outside for node in ast.walk(each.node.args)
               if isinstance(node, ast.arg)}  # fmt: skip
        bodies = [each.body for each in outside]
        bodies += [each.body for each in nodes if isinstance(each, LOOPS)]
        found: set[str] = set()
        for body in bodies:
            for node in own_nodes(body):
                name = self._key(node) if isinstance(node, ast.Call) else ""
                if name and name not in found:
                    found.add(name)
                    bodies.extend(each.body for each in self._functions[name])
        return own - {"self", "cls"}, {id(node) for body in bodies for node in own_nodes(body)}

    def _read_bindings(self, nodes: list[ast.AST]) -> None:
        """Read what is given to names, and follow from name to name what changes."""
        self._outside, repeated = self._repeated(nodes)
        given = self._read_assignments(nodes, repeated)
        for _ in range(_MOST_ALIASES):
            for name, value in self._bound:
                if keys := self._standing_for(value):
                    self._aliases.setdefault(name, set()).update(keys)
        for call in self._calls:
            given += [] if self._key(call) else self._given(call, self._standing_for(call.func))
        for _ in range(_MOST_ROUNDS):
            more = {name for name, value in given if self.varies(value)} - self._turning
            if not more:
                break
            self._turning |= more

    def _read_assignments(
        self, nodes: list[ast.AST], repeated: set[int]
    ) -> list[tuple[str, ast.expr]]:
        """Note what is given to names, and what changes for being given in a loop; return what
        else is given in what is `repeated`, and by calls, which changes where its value does."""
        loops = [node for node in nodes if isinstance(node, LOOPS)]
        looped = {id(node) for loop in loops for node in own_nodes(loop.body)}
        given: list[tuple[str, ast.expr]] = []
        for node in nodes:
            if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
                self._turning.update(stored_names(node.target))
            for target, value in assigned(node):
                pairs = [(name, value) for name in stored_names(target)]
                self._bound += pairs
                if id(node) in looped or (id(node) in repeated and isinstance(node, ast.AugAssign)):
                    self._turning.update(name for name, _ in pairs)
                elif id(node) in repeated:
                    given += pairs
            given += self._given(node, [self._key(node)]) if isinstance(node, ast.Call) else []
        return given

    def _given(self, call: ast.Call, keys: Iterable[str]) -> list[tuple[str, ast.expr]]:
        """Note what a call gives to parameters of functions."""
        pairs = [
            pair
            for key in keys
            for function in self._functions.get(key, ())
            for pair in (
                *((each.arg, each.value) for each in call.keywords if each.arg),
                *zip(function.parameters, call.args, strict=False),
            )
        ]
        self._bound += pairs
        return pairs

    def _standing_for(self, value: ast.AST) -> set[str]:
        """Return what calls of functions look like for which an expression may stand."""
        parts: Iterable[ast.AST]
        if isinstance(value, (ast.Name, ast.Attribute)):
            return self._aliases.get(last_name(value), set()) | ({self._key(value)} - {""})
        if isinstance(value, ast.Call):  # `partial(harder, data)`, `ACTIONS.get(level)`
            is_choice = last_name(value.func) == "get"
            parts = value.args if is_choice or last_name(value.func) == "partial" else []
            parts = [*parts, *([value.func.value] if is_choice else [])]  # type: ignore[attr-defined]
        elif isinstance(value, ast.Subscript):
            parts = [value.value]
        elif isinstance(value, (ast.Dict, ast.List, ast.Tuple, ast.IfExp, ast.BoolOp)):
            parts = list(ast.iter_child_nodes(value))
        else:
            key = f"lambda {id(value)}"
            return {key} & self._functions.keys()
        return set().union(*map(self._standing_for, parts))

    def _model_names(self) -> set[str]:
        """Return the names that stand first where a model's methods are called."""
        called = branch_models.METHODS
        owners = (chain(call.func) for call in self._calls if last_name(call.func) in called)
        return {next((name for name in owner[:-1] if name != "self"), "") for owner in owners}

    def _data_names(self) -> set[str]:
        """Return the names of DataLoaders, of what they were given, and what that is made of."""
        loaders = filter(makes_loader, self._calls)
        found = {name for call in loaders for name in made_of(call)}
        found |= {name for name, value in self._bound if any(map(makes_loader, ast.walk(value)))}
        others = self._modules | {"self", "cls"}
        found -= others
        aliases = (ast.Name, ast.Attribute, ast.Subscript)
        bases = [(owner.name, base) for owner in self._classes.values() for base in owner.bases
                 if last_name(base) in self._classes]  # fmt: skip
        bound = [*self._bound, *bases]
        for _ in range(_MOST_ROUNDS):
            values = [value for name, value in bound if name in found]
            more = {name for value in values for name in made_of(value)}
            more |= {name for name, value in bound
                     if isinstance(value, aliases) and found & set(chain(value))}  # fmt: skip
            more -= found | others
            if not more:
                break
            found |= more
        return found

    def _read_by_samples(self, trees: Iterable[ast.Module]) -> set[str]:
        """Return what the reading of samples uses; add to it the functions that it calls."""
        stored = (pair for tree in trees for node in own_nodes(tree.body)
                  for pair in assigned(node))  # fmt: skip
        shared = {name for target, _ in stored for name in stored_names(target)}
        shared |= self._classes.keys() | self._own_modules | {"self"}
        used: set[str] = set()
        for function in self._reading:  # which grows by what these call
            own = function.own_names
            for node in ast.walk(function.node):
                names = chain(node) if isinstance(node, (ast.Name, ast.Attribute)) else []
                used.add(self._file(node))
                if names[:1] and names[0] in shared - own:
                    used |= {".".join(names[:1]), ".".join(names[:2])}
                is_own = isinstance(node, ast.Name) or names[:-1] == ["self"]
                more = self._functions.get(self._key(node), ()) if is_own else ()
                self._reading += [each for each in more if each not in self._reading]
        return used - {" "}

    def _read_locals(self, functions: Iterable[Function]) -> None:
        """Note the names that are a function's own, and the `self` of a data set's methods."""
        for function in functions:
            nodes = list(own_nodes(function.body))
            globals_ = {n for node in nodes if isinstance(node, ast.Global) for n in node.names}
            names_ = [node for node in nodes if isinstance(node, ast.Name)]
            self._locals |= {id(node) for node in names_ if node.id not in globals_}
            owner = "" if function.owner is None else function.owner.name
            if owner in self._data and function not in self._reading and not function.is_special:
                selves = (node for node in names_ if node.id in ("self", "cls"))
                self._selves |= dict.fromkeys(map(id, selves), owner)

    def _read_touches(self) -> None:
        """Find out what calls of functions touch, also through those that they call."""
        for _ in range(_MOST_ROUNDS):
            found = {
                name: set().union(*(self.touched(each.body) for each in members))
                for name, members in self._functions.items()
            }
            if found == self._of_functions:
                break
            self._of_functions = found

    def _reads_samples(self, function: Function) -> bool:
        name = getattr(function.node, "name", "")
        if function.owner is None:
            return name in self._data
        is_given = function.owner.name in self._data
        return name in ("__getitem__", "__iter__") or (is_given and name in READING)

    def _never_named(self) -> set[int]:
        """Return the identities of functions that are given to a library, and of methods of classes
        that build on a library's: by what is written here nobody calls them."""
        given = {key for call in self._calls
                 if not self._key(call) and last_name(call.func) not in branch_processes.PROCESSES
                 for each in (*call.args, *(k.value for k in call.keywords))
                 for key in self._standing_for(each)}  # fmt: skip
        found: set[int] = set()
        for name in self._functions.keys() - self._called:
            for each in self._functions[name]:
                if each.owner is None:
                    is_called = name in given or bool(getattr(each.node, "decorator_list", ()))
                else:
                    bases = {last_name(base) for base in each.owner.bases}
                    is_called = bool(bases - self._classes.keys() - {"object", "Module"})
                    is_called &= not each.is_special and each.owner.name not in self._data
                if is_called and Touch.DATA in self.touched(each.body):
                    found.add(id(each.node))
        return found

    def _caught(self, nodes: list[ast.AST]) -> set[str]:
        """Return the names of the exceptions that are caught, and of all in a handler of any."""
        handlers = (node for node in nodes if isinstance(node, ast.ExceptHandler))
        return {last_name(part) for each in handlers for part in ast.walk(each.type or each)}
