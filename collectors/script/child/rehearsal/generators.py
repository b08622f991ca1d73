"""States of generators of random numbers, of Python, numpy and torch."""

from __future__ import annotations

import hashlib
import random
import sys
import zlib
from array import array
from dataclasses import dataclass
from functools import lru_cache
from types import GetSetDescriptorType
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal.inspection import (
    bytes_of,
    class_dict,
    is_a,
    module_dict,
    mro_of,
)

WORDS = 624
"""32-bit words of the Mersenne Twister's state, made anew when all of them were drawn."""
BLOCKS_AT_ONCE = 1024
MOST_BLOCKS = 1 << 14
"""Times that a state is made anew that are looked through: 10 million words, 0.1 s."""
GLOBAL = ("torch", "random", "numpy.random")
"""Paths of the process's own generators."""


@dataclass(frozen=True)
class GeneratorState:
    """The state of one generator."""

    digest: str
    stream: Any
    """What stays while numbers are drawn and not when the generator is seeded: a stream's number
    or, of Python's and numpy's old generators, the Mersenne Twister's words and place."""

    def was_drawn_to(self, later: GeneratorState) -> bool:
        """Say whether a later state may follow from this one by drawing, with no new seed."""
        if type(self.stream) is _Twister and type(later.stream) is _Twister:
            return self.stream.reaches(later.stream)
        return bool(self.stream == later.stream)


@dataclass(frozen=True)
class _Twister:
    words: tuple[int, ...]
    place: int

    def reaches(self, later: _Twister) -> bool:
        """Say whether drawing leads to a later state, within `MOST_BLOCKS`."""
        if self.words == later.words:
            return later.place >= self.place
        copy = random.Random()
        copy.setstate((3, (*self.words, WORDS), None))
        first, second = _tempered(later.words[0]), _tempered(later.words[1])
        for _ in range(0, MOST_BLOCKS, BLOCKS_AT_ONCE):
            size = WORDS * BLOCKS_AT_ONCE
            drawn = array("I", copy.getrandbits(32 * size).to_bytes(4 * size, sys.byteorder))
            if sys.byteorder == "big":  # the first word drawn is the lowest
                drawn.reverse()
            if (first, second) in zip(drawn[::WORDS], drawn[1::WORDS], strict=True):
                return True
        return False


def _tempered(word: int) -> int:
    """Return what a word of the Mersenne Twister's state is drawn as (Matsumoto, Nishimura)."""
    word ^= word >> 11
    word ^= (word << 7) & 0x9D2C5680
    word ^= (word << 15) & 0xEFC60000
    return word ^ (word >> 18)


def is_generator(value: Any) -> bool:
    """Say whether a value is a generator of random numbers with a state of its own."""
    if is_a(value, "random.SystemRandom"):  # draws from the operating system
        return False
    return any(is_a(value, name) for name in _STATES)


def generator_state(value: Any) -> GeneratorState:
    """Return a generator's state; its digest is equal in all processes where the state is.

    Raises whatever the library does where it does not tell the state.
    """
    of = next(state for name, state in _STATES.items() if is_a(value, name))
    state, stream = of(value)
    return GeneratorState(hashlib.blake2b(repr(state).encode(), digest_size=8).hexdigest(), stream)


def generator_digest(value: Any) -> str:
    """Return a digest of a generator's state."""
    return generator_state(value).digest


def torch_digest(torch: Any) -> int:
    """Return a checksum of the state of the generators that a forward pass draws from.

    It neither waits for a GPU nor initialises CUDA, and takes some 10 us.
    """
    digest = 0
    cuda = [torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else []
    for state in (torch.get_rng_state(), *cuda):
        content, _kept = bytes_of(state)
        digest = zlib.crc32(content, digest)
    return digest


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


def global_digests() -> dict[str, str]:
    """Return digests of the states of the generators that modules share."""
    return {path: generator_digest(each) for path, each in global_generators().items()}


def library_generators() -> dict[str, Any]:
    """Return the generators that stand in other modules' names, as libraries of augmentations have
    them: workers are not seeded anew in those.

    Looking through some 2,000 modules takes 30 ms, once until another one is imported.
    """
    return _standing_in(len(sys.modules))


@lru_cache(maxsize=1)
def _standing_in(_: int) -> dict[str, Any]:
    kinds = {id(module_dict(sys.modules.get(module)).get(name))
             for module, _, name in (each.rpartition(".") for each in _STATES)}  # fmt: skip
    known = {id(each) for each in global_generators().values()}
    return {
        f"{name}.{key}": value
        for name, module in list(sys.modules.items())
        for key, value in list(module_dict(module).items())
        if id(type(value)) in kinds and id(value) not in known
    }


def _of_random(value: Any) -> tuple[Any, Any]:
    state = random.Random.getstate(value)
    return state, _Twister(state[1][:-1], state[1][-1])


def _of_bit_generator(value: Any) -> tuple[Any, Any]:
    named = (class_dict(base).get("state") for base in mro_of(type(value)))
    member: Any = next(member for member in named if type(member) is GetSetDescriptorType)
    state = _plain(member.__get__(value))
    spawned = getattr(getattr(value, "seed_seq", None), "n_children_spawned", 0)
    inner = state.get("state", {})
    if "pos" in inner:
        stream: Any = _Twister(tuple(inner["key"]), inner["pos"])
    else:  # PCG64's increment, Philox's key; SFC64 has none
        stream = (state["bit_generator"], inner.get("inc"), inner.get("key"))
    return (state, spawned), stream


def _of_numpy(value: Any) -> tuple[Any, Any]:
    member: Any = class_dict(sys.modules["numpy"].random.Generator)["bit_generator"]
    return _of_bit_generator(member.__get__(value))


def _of_random_state(value: Any) -> tuple[Any, Any]:
    state = _plain(sys.modules["numpy"].random.RandomState.get_state(value, legacy=False))
    inner = state["state"]
    stream = _Twister(tuple(inner["key"]), inner["pos"]) if "pos" in inner else None
    return state, stream


def _of_torch(value: Any) -> tuple[Any, Any]:
    torch: Any = sys.modules["torch"]
    with torch.no_grad(), torch._C.DisableTorchFunction():
        base = torch._C.Generator
        content = bytes(base.get_state(value).tolist())
        seed = base.initial_seed(value)
    return (str(value.device.type), content), seed


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


def reseed(torch: Any, seed: int, is_of_data: bool) -> None:
    """Let torch draw other random numbers from here on, and those that data are made of too."""
    torch.manual_seed(seed)
    if is_of_data:
        random.seed(seed)
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(seed % 2**32)
