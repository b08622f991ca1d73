"""The part of `triton.language` that tests use, on torch's CPU tensors."""

import builtins

import torch

float32 = torch.float32
int32 = torch.int32
PLACE = [0, 0, 0]
"""Place in the grid of the program that runs."""
PROGRAMS = [0]
"""Programs that ran so far."""


class constexpr:
    pass


class Pointer:
    """A place in a tensor's memory, or many."""

    def __init__(self, memory, place):
        self.memory, self.place = memory, place

    @classmethod
    def to(cls, tensor):
        size = tensor.untyped_storage().nbytes() // tensor.element_size()
        memory = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage(), 0, (size,), (1,))
        return cls(memory, torch.tensor(tensor.storage_offset()))

    @property
    def dtype(self):
        return self.memory.dtype

    def __add__(self, offset):
        return Pointer(self.memory, self.place + offset)


def program_id(axis):
    return PLACE[axis]


def arange(start, end):
    if (end - start) & (end - start - 1):
        raise ValueError("arange's range must be a power of 2")
    return torch.arange(start, end)


def load(pointer, mask=None, other=0.0):
    if mask is None:
        return pointer.memory[pointer.place]
    place, mask = torch.broadcast_tensors(pointer.place, mask)
    found = torch.full(place.shape, other, dtype=pointer.memory.dtype)
    found[mask] = pointer.memory[place[mask]]
    return found


def store(pointer, value, mask=None):
    place = pointer.place
    value = torch.as_tensor(value, dtype=pointer.memory.dtype).expand(place.shape)
    if mask is None:
        pointer.memory[place] = value
    else:
        mask = mask.expand(place.shape)
        pointer.memory[place[mask]] = value[mask]


def atomic_add(pointer, value, mask=None):
    store(pointer, load(pointer, mask) + value, mask)


def zeros(shape, dtype):
    return torch.zeros(shape, dtype=dtype)


def sum(x, axis=None):
    return x.sum() if axis is None else x.sum(axis)


def max(x, axis=None):
    return x.max() if axis is None else x.max(axis).values


exp, sigmoid, where, sqrt = torch.exp, torch.sigmoid, torch.where, torch.sqrt
range = builtins.range
