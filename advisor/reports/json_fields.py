"""How things become JSON: attributes by name, rows of them, and nothing that JSON cannot hold."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from gpuadvisor.reports import figures
from gpuadvisor.reports.strict_json import strict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuadvisor.domain.device import Device
    from gpuadvisor.domain.profile import DeviceLimits

Json = dict[str, Any]


def fields(thing: object, names: str) -> Json:
    """Return attributes of an object by name, in this order.

    `names` are separated by spaces. `name=attribute` gives one another name (dots allowed), and a
    question mark behind it makes null of what is empty.
    """
    found = {}
    for each in names.split():
        name, _, attribute = each.rstrip("?").partition("=")
        value = attrgetter(attribute or name)(thing)
        found[name] = (value or None) if each.endswith("?") else value
    return found


def rows(things: Iterable[object], names: str) -> list[Json]:
    """Return the same attributes of each of some things."""
    return [fields(each, names) for each in things]


def document(values: Json) -> Json:
    """Return values that are strictly valid JSON: NaN and infinity become None."""
    document: Json = strict(values)
    return document


def device_fields(device: Device | DeviceLimits, names: str) -> Json:
    """Return fields of a device, its compute capability among them as `9.0`."""
    found = fields(device, names)
    return found | {"compute_capability": figures.capability(device.compute_capability)}
