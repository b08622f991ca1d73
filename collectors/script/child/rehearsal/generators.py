"""States of generators of random numbers, of Python, numpy and torch."""

from __future__ import annotations

import hashlib
import random
import sys
from types import GetSetDescriptorType
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal.inspection import (
    class_dict,
    is_a,
    module_dict,
    mro_of,
)

GLOBAL_PATHS = ("random", "numpy.random", "torch")
"""Names of the generators that every module of a process shares."""


def is_generator(value: Any) -> bool:
    """Say whether a value is a generator of random numbers with a state of its own."""
    if is_a(value, "random.SystemRandom"):  # draws from the operating system
        return False
    return any(is_a(value, name) for name in _STATES)


def generator_digest(value: Any) -> str:
    """Return a digest of a generator's state, equal in all processes where the state is.

    Raises whatever the library does where it does not tell the state.
    """
    state = next(state for name, state in _STATES.items() if is_a(value, name))
    return hashlib.blake2b(repr(state(value)).encode(), digest_size=8).hexdigest()


def global_generators() -> dict[str, Any]:
    """Return the generators that modules share, as far as the script has loaded the modules."""
    found: dict[str, Any] = {"random": module_dict(random).get("_inst")}
    legacy = module_dict(sys.modules.get("numpy.random.mtrand")).get("_rand")
    if legacy is not None:
        found["numpy.random"] = legacy
    default = module_dict(sys.modules.get("torch")).get("default_generator")
    if default is not None:
        found["torch"] = default
    return found


def _of_random(value: Any) -> Any:
    return random.Random.getstate(value)


def _of_bit_generator(value: Any) -> Any:
    named = (class_dict(base).get("state") for base in mro_of(type(value)))
    state = next(member for member in named if type(member) is GetSetDescriptorType)
    spawned = getattr(getattr(value, "seed_seq", None), "n_children_spawned", 0)
    return _plain(state.__get__(value)), spawned


def _of_numpy(value: Any) -> Any:
    cls = sys.modules["numpy"].random.Generator
    return _of_bit_generator(cls.bit_generator.__get__(value))


def _of_random_state(value: Any) -> Any:
    return _plain(sys.modules["numpy"].random.RandomState.get_state(value, legacy=False))


def _of_torch(value: Any) -> Any:
    torch = sys.modules["torch"]
    with torch.no_grad(), torch._C.DisableTorchFunction():
        state = torch._C.Generator.get_state(value)
        return str(value.device.type), bytes(state.tolist())


def _plain(state: Any) -> Any:
    """Return a state with lists in place of its arrays, which would be printed shortened."""
    if type(state) is dict:
        return {key: _plain(item) for key, item in state.items()}
    return state.tolist() if is_a(state, "numpy.ndarray") else state


_STATES = {
    "random.Random": _of_random,
    "numpy.random.Generator": _of_numpy,
    "numpy.random.BitGenerator": _of_bit_generator,
    "numpy.random.RandomState": _of_random_state,
    "torch.Generator": _of_torch,
}
