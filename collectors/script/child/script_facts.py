"""What the script does by itself, seen from the places where the harness stands anyway."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from inspect import isfunction
from typing import Any

from gpuadvisor.collectors.script.child.trace import tensors_in
from gpuadvisor.domain.knobs import LoaderFacts

SHAPE_CALLS = 24
"""Calls of the first root whose input shapes are looked at."""
FIXED_SHAPES = 2
"""Shapes that still count as fixed: the last batch of an epoch is often smaller."""
MOST = 16
"""Loaders, optimizers and roots that are reported. Some scripts have an optimizer a parameter."""


@dataclass(slots=True)
class UsedLoader:
    """A DataLoader that gave batches. Not its iterator, which would keep worker processes alive."""

    iterator: Callable[[], Any]
    """Returns the iterator that gave the last batch, None once it is gone."""
    facts: LoaderFacts
    batches: int
    full: int
    """Batches of an epoch that are full; 0 if that is not known."""


class FactsRecorder:
    """Collects what decides which knobs make sense."""

    def __init__(self, torch: Any, visible_gpus: str | None = None) -> None:
        """`visible_gpus` is the `CUDA_VISIBLE_DEVICES` that was set for the script, if any."""
        self._torch = torch
        self._given_gpus = visible_gpus
        self._own_gpus: str | None = None
        self._loaders: dict[int, UsedLoader] = {}
        self._shapes: set[tuple[tuple[int, ...], ...]] = set()
        self._hides_shapes = False
        self._shape_calls = 0
        self.knows_shapes = False
        """Whether enough calls of a root were looked at."""
        self._roots: list[str] = []
        self._device = ""
        self._convolution = False
        self._attention = False
        self._random: tuple[bytes, bytes] | None = None
        """State of the random generators before the first call of a root."""
        self._draws_random = False
        self.optimizers: list[str] = []
        self.compiles = False
        self.autocasts = False
        self.scales = False
        self.trains = False
        """Whether a backward pass or an optimizer's step was seen."""
        self.learning_calls = 0
        """Calls of a root in training mode with gradients on, among those whose input was noted.
        A script of which most are like that may update parameters in a way of its own."""

    def loader(self, iterator: Any) -> UsedLoader:
        """Note that a loader's iterator gives batches now, and return what is kept of it."""
        used = self._loaders.get(id(iterator._dataset))
        if used is None or used.iterator() is not iterator:  # a new epoch, or another loader
            count = used.batches if used is not None else 0
            full = _full_batches(self._torch, iterator)
            used = UsedLoader(weakref.ref(iterator), _loader(iterator), count, full)
            self._loaders[id(iterator._dataset)] = used
        return used

    def root_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the shapes of one call's input."""
        self._shape_calls += 1
        self.knows_shapes = self._shape_calls >= SHAPE_CALLS
        if self._shape_calls == 1:
            self._draws_random = self._random != random_state(self._torch)
        try:
            tensors = tensors_in(self._torch, (args, kwargs))
            self._shapes.add(tuple(tuple(tensor.shape) for tensor in tensors))
        except Exception:  # what does not let itself be looked into may be of any shape
            self._hides_shapes = True

    def root(self, module: Any) -> None:
        """Note a root at its first call; it may be gone when the script ends."""
        if not self._roots:  # what is set later than this changes nothing any more
            value = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
            self._own_gpus = None if self._given_gpus in (None, value) else value
        members = list(module.modules())
        nn = self._torch.nn
        kinds = [f"Conv{transposed}{n}d" for transposed in ("", "Transpose") for n in (1, 2, 3)]
        convolution = tuple(getattr(nn, kind) for kind in kinds)
        self._roots.append(type(getattr(module, "_orig_mod", module)).__name__)
        self._device = self._device or next(module.parameters()).device.type
        self._convolution |= any(isinstance(member, convolution) for member in members)
        self._random = self._random or random_state(self._torch)
        self._attention |= any("attention" in type(m).__name__.lower() for m in members)

    @property
    def has_roots(self) -> bool:
        return bool(self._roots)

    def report(self) -> dict[str, Any]:
        """Return the fields of `ScriptFacts`."""
        cuda = self._torch.cuda
        busy = "cuda" if cuda.is_initialized() and cuda.max_memory_allocated() else "cpu"
        loaders = [
            (used.batches, replace(used.facts, place=place))
            for place, used in enumerate(self._loaders.values())
        ]
        loaders.sort(key=lambda loader: -loader[0])
        return {
            "training": self.trains or 2 * self.learning_calls > self._shape_calls,
            "device": self._device or busy,
            "loaders": [asdict(facts) for _, facts in loaders[:MOST]],
            "optimizers": self.optimizers[:MOST],
            "roots": self._roots[:MOST],
            "has_convolution": self._convolution,
            "has_attention": self._attention,
            "compiles_itself": self.compiles,
            "autocasts_itself": self.autocasts,
            "scales_itself": self.scales,
            "draws_random": self._draws_random,
            "cpu_threads": self._torch.get_num_threads(),
            "own_gpus": self._own_gpus,
            "varying_shapes": self._hides_shapes or len(self._shapes) > FIXED_SHAPES,
            "triton_kernels": triton_kernels()[:MOST],
        }


def triton_kernels() -> list[str]:
    """Return the names of Triton kernels that were launched, but for those of torch and Triton.

    A kernel keeps what was compiled of it for its launches. One that does not, as in an
    interpreter, counts as launched. What Inductor launches itself is not among them.
    """
    interface = getattr(sys.modules.get("triton.runtime.jit"), "KernelInterface", None)
    if not isinstance(interface, type):
        return []
    # Not `isinstance`, which asks some objects of libraries for more than their type.
    found = (each for each in gc.get_objects() if issubclass(type(each), interface))
    functions = (
        getattr(each, "fn", None) for each in found if getattr(each, "device_caches", True)
    )
    return sorted({f.__name__ for f in functions if isfunction(f) and _is_own(f)})


def _is_own(function: Any) -> bool:
    return str(function.__module__).partition(".")[0] not in ("torch", "triton")


def random_state(torch: Any) -> tuple[bytes, bytes]:
    """Return the state of the generators that a forward pass draws from.

    Reading it neither waits for a GPU nor initialises CUDA.
    """
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else torch.empty(0)
    return bytes(torch.get_rng_state().tolist()), bytes(cuda.byte().tolist())


def _full_batches(torch: Any, iterator: Any) -> int:
    """Return how many batches torch's own sampler fills, before a last one that it may not.

    A function of the script's own that makes batches of samples may leave some out.
    """
    if getattr(iterator, "_collate_fn", None) is not torch.utils.data.default_collate:
        return 0
    sampler: Any = getattr(iterator, "_index_sampler", None)
    if type(sampler) is not torch.utils.data.BatchSampler or not hasattr(iterator, "_num_yielded"):
        return 0
    try:
        return len(sampler.sampler) // int(sampler.batch_size)
    except TypeError:  # an endless one, or one of the script's that does not tell
        return 0


def _loader(iterator: Any) -> LoaderFacts:
    """Return what a loader's iterator knows of its loader (torch 2.4 to 2.13)."""
    sampler = getattr(iterator, "_index_sampler", None)
    size = getattr(sampler, "batch_size", None)  # a sampler of the script's may have any
    return LoaderFacts(
        batch_size=size if isinstance(size, int) else None,
        num_workers=int(getattr(iterator, "_num_workers", 0)),
        pin_memory=bool(getattr(iterator, "_pin_memory", False)),
        persistent_workers=bool(getattr(iterator, "_persistent_workers", False)),
        prefetch_factor=getattr(iterator, "_prefetch_factor", None),
        iterable=int(getattr(iterator, "_dataset_kind", 0)) == 1,  # _DatasetKind.Iterable
    )
