"""Modules that are named in strings, which no import contract sees: they exist, and none climbs.

The layers are those of the contract in pyproject.toml.
"""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("advisor", "collectors", "rules", "storage", "tui", "tuners")

DOTTED = re.compile(r"\bgpuadvisor(?:\.[A-Za-z_]\w*)+")
IMPORTS = re.compile(r"^(?:from|import) gpuadvisor.*$", re.MULTILINE)
"""Where most modules name others, and no string does: those need not be parsed."""
FILES = {
    "gpuadvisor.db": "the database",
    "gpuadvisor.service": "the daemon's unit of systemd",
    "gpuadvisor.gate": "a table of pyproject.toml, below `tool`",
    "gpuadvisor.toml": "the file of settings",
}
CLIMBS = {
    "gpuadvisor": "the public names, resolved when they are first asked for",
}
"""Modules that may name any other, and why."""


def sources():
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))  # which follows no links


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    inner = parts[1:] if parts[0] == "advisor" else parts
    return ".".join(("gpuadvisor", *(part for part in inner if part != "__init__")))


@cache
def modules():
    return {module_of(path): path for path in sources()}


@cache
def text_of(path):
    return path.read_text("utf-8")


@cache
def tree_of(path):
    return ast.parse(text_of(path))


def documentation(tree):
    """Return the nodes of texts that stand alone, such as docstrings: they are for readers."""
    alone = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return {id(value) for value in alone if isinstance(value, ast.Constant)}


@cache
def named(path):
    """Return each dotted name in the file's strings, and whether code uses it."""
    if not DOTTED.search(IMPORTS.sub("", text_of(path))):
        return []
    tree = tree_of(path)
    documented = documentation(tree)
    return [
        (name, id(node) not in documented)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in DOTTED.findall(node.value)
        if name not in FILES
    ]


def module_in(name):
    """Return the module that a dotted name begins with, and what is left of it."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        if (module := ".".join(parts[:count])) in modules():
            return module, parts[count:]
    raise AssertionError(name)


@cache
def defined(module):
    """Return the names that a module's text defines, classes and their attributes included."""
    tree = tree_of(modules()[module])
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.alias(name=name, asname=other):
                found.add(other or name)
    return found


@cache
def layers():
    """Return the place of each room in the contract, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (contract,) = [each for each in contracts if each["type"] == "layers"]
    return {
        room.strip(): place
        for place, layer in enumerate(contract["layers"])
        for room in layer.split("|")
    }


def room(module):
    return module.split(".")[1] if "." in module else module


def test_the_files_are_found():
    assert {room(module) for module in modules()} - {"gpuadvisor"} == layers().keys()


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_strings_name_exists(folder):
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources()
        if path.is_relative_to(ROOT / folder)
        for name, _ in named(path)
        for module, rest in [module_in(name)]
        if not set(rest) <= defined(module)
    ]
    assert missing == []


def test_no_string_names_a_module_above_or_beside_its_own():
    climbs = [
        f"{owner}: {name}"
        for owner, path in modules().items()
        if owner not in CLIMBS
        for name, is_used in named(path)
        for module, _ in [module_in(name)]
        if is_used and module != "gpuadvisor" and room(module) != room(owner)
        if layers()[room(module)] <= layers()[room(owner)]
    ]
    assert climbs == []


def test_the_modules_that_packages_declare_for_the_target_process_exist():
    declared = {}
    for module, path in modules().items():
        for node in tree_of(path).body if "TARGET_MODULES" in text_of(path) else ():
            match node:
                case ast.Assign(targets=[ast.Name(id="TARGET_MODULES")], value=value):
                    declared[module] = ast.literal_eval(value)
    assert declared
    for package, names in declared.items():
        assert {f"{package}.{name}" for name in names if name != "*"} <= modules().keys()
