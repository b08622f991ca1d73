"""Which rules and events there are: the files of `catalogue` and `health`, and other packages'.

Another package adds a rule by an entry point of the group `gpuadvisor.rules`: its name is the
rule's, its value the module. The page is the Markdown file of the module's name beside it. One that
cannot be used is left out, and `problems` says why: it must not keep all others from working.
"""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Iterable, Iterator
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from gpuadvisor.rules import catalogue, health
from gpuadvisor.rules.alert_states import Condition
from gpuadvisor.rules.rule import Loaded, Rule

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "gpuadvisor.rules"
LOG = logging.getLogger(__name__)


def load_rules() -> tuple[Loaded, ...]:
    """Return all rules by name; of two with one name ours.

    Raises:
        TypeError: if a module of ours is no rule.
    """
    return _all()[0]


@cache
def load_health_rules() -> tuple[Loaded, ...]:
    """Return our rules about the machine alone, without importing any other."""
    return tuple(
        _loaded(name, module) for name, module in _health().items() if hasattr(module, "RULE")
    )


def load_events() -> list[Condition]:
    """Return new conditions of the machine that make events, in the order of their files."""
    return [make() for module in _health().values() for make in getattr(module, "EVENTS", ())]


@cache
def rules_with_events() -> frozenset[str]:
    """Return the rules about the machine whose conditions are told as events of their own."""
    return frozenset(name for name, module in _health().items() if hasattr(module, "EVENTS"))


@cache
def load_rules_without_events() -> tuple[Loaded, ...]:
    """Return the rules about the machine that nothing else tells of, and those that hide them."""
    told = rules_with_events()
    silent = [rule for rule in load_health_rules() if rule.name not in told]
    symptoms = {each for rule in silent for each in (rule.name, str(rule.rule.category))}
    return tuple(
        rule for rule in load_health_rules() if rule in silent or symptoms & {*rule.rule.hides}
    )


@cache
def _health() -> dict[str, ModuleType]:
    """Return the files of `health` by their names.

    Raises:
        TypeError: if one has neither a rule nor events.
    """
    found = dict(_in_folder(health))
    for name, module in found.items():
        if not hasattr(module, "RULE") and not hasattr(module, "EVENTS"):
            raise TypeError(f"{module.__name__} is no condition: {name} needs a RULE or EVENTS")
    return found


def problems() -> tuple[str, ...]:
    """Return why rules of other packages cannot be used, a sentence each."""
    return _all()[1]


@cache
def _all() -> tuple[tuple[Loaded, ...], tuple[str, ...]]:
    from importlib.metadata import entry_points  # 20 ms, which `watch` does without

    general = (_loaded(name, module) for name, module in _in_folder(catalogue))
    ours = {rule.name: rule for rule in (*general, *load_health_rules())}
    others, why = _of_others(entry_points(group=GROUP), ours.keys())
    found = {**others, **ours}
    return tuple(found[name] for name in sorted(found)), why


def _in_folder(folder: ModuleType) -> Iterator[tuple[str, ModuleType]]:
    for module in pkgutil.iter_modules(folder.__path__):
        yield module.name, import_module(f"{folder.__name__}.{module.name}")


def _of_others(
    points: Iterable[EntryPoint], taken: Iterable[str]
) -> tuple[dict[str, Loaded], tuple[str, ...]]:
    """Return the rules of other packages, and why some of them cannot be used."""
    found: dict[str, Loaded] = {}
    why: list[str] = []
    for point in points:
        package = point.dist.name if point.dist is not None else point.value
        if point.name in taken or point.name in found:
            why.append(f"{package} has a rule {point.name}, but that name is taken: ignored")
            continue
        try:
            rule = _loaded(point.name, import_module(point.value))
            assert isinstance(rule.page, str)  # one that cannot be read is known now
            found[point.name] = rule
        except Exception as error:  # whatever importing another package's code raises
            LOG.debug("the rule %s of %s failed", point.name, package, exc_info=True)
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            why.append(f"the rule {point.name} of {package} cannot be used ({reason}): ignored")
    return found, tuple(why)


def _loaded(name: str, module: ModuleType) -> Loaded:
    rule, check = getattr(module, "RULE", None), getattr(module, "check", None)
    if not isinstance(rule, Rule) or not callable(check):
        raise TypeError(f"{module.__name__} is no rule: it needs a RULE and a check(evidence)")
    title = (module.__doc__ or name).strip().splitlines()[0].rstrip(".")
    return Loaded(name, title, rule, check, partial(_page, module))


def _page(module: ModuleType) -> str:
    from importlib import resources

    package, _, name = module.__name__.rpartition(".")
    page = resources.files(package or module.__name__) / f"{name}.md"
    return page.read_text("utf-8") if page.is_file() else ""
