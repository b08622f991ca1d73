"""Which rules there are: the files of `catalogue`, and those of other packages.

Another package adds a rule by an entry point of the group `gpuadvisor.rules`: its name is the
rule's, its value the module. The page is the Markdown file of the module's name beside it.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module, resources
from importlib.metadata import entry_points
from types import ModuleType

from gpuadvisor.rules import catalogue
from gpuadvisor.rules.rule import Loaded, Rule

GROUP = "gpuadvisor.rules"


@cache
def load_rules() -> tuple[Loaded, ...]:
    """Return all rules by name; of two with one name ours.

    Raises:
        TypeError: if a module is no rule.
        Exception: whatever importing another package's rule raises.
    """
    names = [module.name for module in pkgutil.iter_modules(catalogue.__path__)]
    found = {name: _loaded(name, f"{catalogue.__name__}.{name}") for name in names}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, _loaded(point.name, point.value))
    return tuple(found[name] for name in sorted(found))


def _loaded(name: str, module_name: str) -> Loaded:
    module = import_module(module_name)
    rule, check = getattr(module, "RULE", None), getattr(module, "check", None)
    if not isinstance(rule, Rule) or not callable(check):
        raise TypeError(f"{module_name} is no rule: it needs a RULE and a check(evidence)")
    title = (module.__doc__ or name).strip().splitlines()[0].rstrip(".")
    return Loaded(name, title, rule, check, _page(module))


def _page(module: ModuleType) -> str:
    package, _, name = module.__name__.rpartition(".")
    page = resources.files(package or module.__name__) / f"{name}.md"
    return page.read_text("utf-8") if page.is_file() else ""
