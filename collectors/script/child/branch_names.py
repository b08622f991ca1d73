"""What a file's names stand for, by its text: data, models, and what changes during a run.

Names are taken for what they are called, wherever in the file: a local `data` and an attribute
`data` are one. That is coarse, and enough to know which branches are worth a look.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from gpuadvisor.domain.rehearsal import Touch

MUTATING = frozenset((
    "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop",
    "popitem", "popleft", "remove", "setdefault", "subtract", "update",
))  # fmt: skip
"""Methods that change lists, dictionaries, sets, deques and counters."""
PARTS = frozenset({
    "add_param_group", "bias", "data", "grad", "jit", "load_state_dict", "named_parameters", "onnx",
    "parameters", "parametrize", "prune", "register_forward_hook", "register_hook",
    "requires_grad", "requires_grad_", "spectral_norm", "weight", "weight_norm",
})  # fmt: skip
"""Names by which a script reaches for a model's weights and layers, or an optimizer's."""
MODEL_METHODS = frozenset({"eval", "named_parameters", "parameters", "state_dict", "train"})
"""Methods by which a script's models are known."""
DATA_WORDS = frozenset({"dataloader", "dataset", "environ"})
"""Words in names of data, and the environment, of which workers have a copy."""
STEADY_CALLS = frozenset({"callable", "hasattr", "is_available", "isinstance", "issubclass"})
"""What gives the same answer whenever it is asked."""
STEADY_METHODS = frozenset({"endswith", "get", "lower", "startswith", "strip", "upper"})
"""Methods whose answer depends on their owner and arguments alone."""
GIVEN_KEYWORDS = frozenset({"batch_sampler", "collate_fn", "dataset", "sampler", "worker_init_fn"})
"""Arguments of a DataLoader that workers or their indices depend on."""
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.While, ast.AsyncFor)
_SCOPES = (*DEFINITIONS, ast.ClassDef, ast.Lambda)
_MOST_ROUNDS = 20
"""Assignments from name to name that are followed."""


class Names:
    """What is known of a file's names; read it before its tree is changed."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        self._calls = [node for node in nodes if isinstance(node, ast.Call)]
        self._functions: dict[str, Any] = {}
        """Functions by what calls of them look like: `train`, `.train` for a method, and the name
        of its class for an initializer."""
        self._functions |= {node.name: node for node in nodes if isinstance(node, DEFINITIONS)}
        for owner in [node for node in nodes if isinstance(node, ast.ClassDef)]:
            for each in owner.body:
                if isinstance(each, DEFINITIONS):
                    self._functions.pop(each.name, None)
                    name = owner.name if each.name == "__init__" else f".{each.name}"
                    self._functions[name] = each
        imports = (node for node in nodes if isinstance(node, ast.Import))
        names = (alias.asname or alias.name for node in imports for alias in node.names)
        self._modules = {name.partition(".")[0] for name in names}
        self._bound: list[tuple[str, ast.expr]] = []
        """Each name, attribute and parameter, and what it is given somewhere."""
        self._turning: set[str] = set()
        """Those whose value changes in the course of a run."""
        self._outside: set[str] = set()
        """Parameters that another file gives: optional parts, or what it counts."""
        self._read_bindings(nodes)
        self._data = self._data_names()
        self._read_by_data = self._globals_of_data(tree, nodes)
        owners = (chain(call.func) for call in self._calls if last_name(call.func) in MODEL_METHODS)
        roots = {next((name for name in owner[:-1] if name != "self"), "") for owner in owners}
        self._models = roots - {"", *self._modules}
        self._of_functions: dict[str, set[Touch]] = {}
        for _ in range(_MOST_ROUNDS):
            found = {name: self.touched(each.body) for name, each in self._functions.items()}
            if found == self._of_functions:
                break
            self._of_functions = found

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
        if isinstance(test, (ast.Lambda, ast.Constant)):
            return False
        is_number = isinstance(test, (ast.BinOp, ast.Compare))
        is_number &= not any(isinstance(each, (ast.Is, ast.IsNot)) for each in ast.walk(test))
        if is_number and not self._outside.isdisjoint(_bare_names(test)):
            return True
        return any(self.varies(n) for n in ast.iter_child_nodes(test) if isinstance(n, ast.expr))

    def decides(self, test: ast.expr) -> bool:
        """Say whether a value ends a loop with this condition, and not a count."""
        names = {last_name(node) for node in ast.walk(test)} & self._turning
        given = [value for name, value in self._bound if name in names]
        is_count = isinstance(test, ast.Compare) and all(isinstance(v, ast.Constant) for v in given)
        return self.varies(test) and not is_count

    def touched(self, body: Iterable[ast.AST]) -> set[Touch]:
        """Return what statements may change of what settings rely on, and functions they call."""
        nodes = list(own_nodes(body))
        dropped = {id(call) for node in nodes for call in _dropped(node)}
        found: set[Touch] = set()
        for node in nodes:
            if isinstance(node, ast.Call):
                found |= self._call(node, id(node) in dropped)
            elif isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete)):
                targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
                found = found.union(*map(self.stored, targets))
            elif isinstance(node, ast.Attribute) and node.attr in PARTS:
                is_data = chain(node) == ["self", "data"]
                found |= set() if is_data else {Touch.MODEL}
        return found

    def stored(self, target: ast.expr) -> set[Touch]:
        """Return what is changed where something is stored in a target."""
        if isinstance(target, (ast.Tuple, ast.List)):
            return set().union(*map(self.stored, target.elts))
        if not isinstance(target, (ast.Attribute, ast.Subscript)):
            is_read = isinstance(target, ast.Name) and target.id in self._read_by_data
            return {Touch.DATA} if is_read else set()
        names = chain(target.value)
        found = self._data_among(names)
        if isinstance(target, ast.Attribute) and self._models & set(names):
            found.add(Touch.MODEL)
        return found

    def _call(self, node: ast.Call, is_dropped: bool) -> set[Touch]:
        called = last_name(node.func)
        found = set(self._of_functions.get(self._key(node), ()))
        if isinstance(node.func, ast.Attribute):
            in_place = called.endswith("_") and not called.startswith("_")
            if is_dropped or called in MUTATING or in_place:
                found |= self._data_among(chain(node.func.value))
        if called in ("setattr", "shuffle") and node.args:
            found |= self._data_among(chain(node.args[0]))
        return found

    def _key(self, call: ast.Call) -> str:
        """Return the name of the file's own function that is called, or an empty one."""
        name = last_name(call.func)
        if isinstance(call.func, ast.Attribute):
            is_model = name in MODEL_METHODS and chain(call.func.value) != ["self"]
            name = "" if is_model else f".{name}"
        return name if name in self._functions else ""

    def _data_among(self, names: list[str]) -> set[Touch]:
        """Return what an attribute path to something of a DataLoader's touches."""
        words = {word for name in names for word in name.lower().split("_")}
        if "sampler" in words:
            return {Touch.ORDER}
        known = {name for place, name in enumerate(names)
                 if name != "data" or place == 0 or names[0] == "self"}  # fmt: skip
        return {Touch.DATA} if known & self._data or words & DATA_WORDS else set()

    # -- reading ---------------------------------------------------------------------------

    def _repeated(self, nodes: list[ast.AST]) -> tuple[set[str], set[int]]:
        """Return the parameters that something outside of the file gives, and the ids of what runs
        in loops, or each time that a function does which is called in them or from outside."""
        called = set(map(self._key, self._calls))
        outside = [self._functions[name] for name in self._functions.keys() - called]
        outside = [each for each in outside if each.name != "__init__"]
        own = {node.arg for each in outside for node in ast.walk(each.args)
               if isinstance(node, ast.arg)}  # fmt: skip
        bodies = [each.body for each in outside]
        bodies += [each.body for each in nodes if isinstance(each, LOOPS)]
        found: set[str] = set()
        for body in bodies:
            for node in own_nodes(body):
                name = self._key(node) if isinstance(node, ast.Call) else ""
                if name and name not in found:
                    found.add(name)
                    bodies.append(self._functions[name].body)
        return own - {"self", "cls"}, {id(node) for body in bodies for node in own_nodes(body)}

    def _read_bindings(self, nodes: list[ast.AST]) -> None:
        """Read what is given to names, and follow from name to name what changes."""
        self._outside, repeated = self._repeated(nodes)
        loops = [node for node in nodes if isinstance(node, LOOPS)]
        looped = {id(node) for loop in loops for node in own_nodes(loop.body)}
        given: list[tuple[str, ast.expr]] = []
        for node in nodes:
            if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
                self._turning.update(_stored(node.target))
            for target, value in _assigned(node):
                pairs = [(name, value) for name in _stored(target)]
                self._bound += pairs
                if id(node) in looped or (id(node) in repeated and isinstance(node, ast.AugAssign)):
                    self._turning.update(name for name, _ in pairs)
                elif id(node) in repeated:
                    given += pairs
            if isinstance(node, ast.Call) and self._key(node):
                taken = self._functions[self._key(node)].args
                names = [each.arg for each in (*taken.posonlyargs, *taken.args)]
                names = [name for name in names if name not in ("self", "cls")]
                pairs = [(each.arg, each.value) for each in node.keywords if each.arg]
                pairs += zip(names, node.args, strict=False)
                self._bound += pairs
                given += pairs
        for _ in range(_MOST_ROUNDS):
            more = {name for name, value in given if self.varies(value)} - self._turning
            if not more:
                break
            self._turning |= more

    def _data_names(self) -> set[str]:
        """Return the names of DataLoaders, of what they were given, and what that is made of."""
        found: set[str] = set()
        for call in self._calls:
            if _makes_loader(call):
                named = (each.value for each in call.keywords if each.arg in GIVEN_KEYWORDS)
                for argument in (*call.args[:1], *named):
                    found.update(_made_of(argument))
        found |= {name for name, value in self._bound if any(map(_makes_loader, ast.walk(value)))}
        aliases = (ast.Name, ast.Attribute, ast.Subscript)
        for _ in range(_MOST_ROUNDS):
            values = [value for name, value in self._bound if name in found]
            more = {name for value in values for name in _made_of(value)}
            more |= {name for name, value in self._bound
                     if isinstance(value, aliases) and found & set(chain(value))}  # fmt: skip
            more -= found | self._modules | {"self", "cls"}
            if not more:
                break
            found |= more
        return found

    def _globals_of_data(self, tree: ast.Module, nodes: list[ast.AST]) -> set[str]:
        """Return the global names that what reads samples uses."""
        used: set[str] = set()
        for node in nodes:
            body = node.body if isinstance(node, ast.ClassDef) else []
            is_set = {"__getitem__", "__iter__"} & {getattr(each, "name", "") for each in body}
            if is_set or (isinstance(node, DEFINITIONS) and node.name in self._data):
                names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
                own = {each.id for each in names if not isinstance(each.ctx, ast.Load)}
                own |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
                used |= {each.id for each in names} - own
        pairs = (pair for node in own_nodes(tree.body) for pair in _assigned(node))
        return used & {name for target, _ in pairs for name in _stored(target)}


def own_nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of statements, without those of functions and classes defined in them."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting.extend(ast.iter_child_nodes(node))


def breaks(body: Iterable[ast.AST]) -> bool:
    """Say whether a `break` leaves the loop that statements stand in, and not one within it."""
    waiting = list(body)
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.Break):
            return True
        if isinstance(inner, LOOPS):
            waiting.extend(inner.orelse)
        elif not isinstance(inner, _SCOPES):
            waiting.extend(ast.iter_child_nodes(inner))
    return False


def last_name(node: ast.AST | None) -> str:
    """Return `step` for `optimizer.step`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def chain(node: ast.AST) -> list[str]:
    """Return the names on the way to a value: `self`, `loader`, `dataset`."""
    names: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return names[::-1]
    return [node.id, *names[::-1]]


def _bare_names(node: ast.AST) -> Iterator[str]:
    """Yield the names in an expression that are not only the way to an attribute."""
    if isinstance(node, ast.Name):
        yield node.id
    elif not isinstance(node, ast.Attribute):
        for each in ast.iter_child_nodes(node):
            yield from _bare_names(each)


def _makes_loader(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func).endswith("Loader")


def _made_of(value: ast.AST) -> Iterator[str]:
    """Yield the names that a value consists of: `Subset` and `pool` of `Subset(pool, 5)`."""
    if isinstance(value, ast.Name):
        yield value.id
    elif isinstance(value, ast.Attribute):
        yield value.attr
    elif isinstance(value, ast.Call):
        if isinstance(value.func, ast.Name):
            yield value.func.id
        for each in (*value.args, *(k.value for k in value.keywords)):
            yield from _made_of(each)


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=False)
            else:
                yield target, node.value
    elif isinstance(node, (ast.AugAssign, ast.NamedExpr, ast.AnnAssign)) and node.value:
        yield node.target, node.value


def _stored(target: ast.expr) -> Iterator[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            yield from _stored(each)
    elif isinstance(target, (ast.Name, ast.Attribute)):
        yield last_name(target)
    elif isinstance(target, ast.Subscript):
        yield last_name(target.value)


def _dropped(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the calls of a statement whose results nobody uses."""
    if isinstance(node, ast.Expr):
        yield from node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
