"""The families of models, all of blocks between which anything can be done.

Sizes are for a GPU that is fed well: each block's products take some 50 us or more of an H100 or
H200. On a CPU all is tiny: there only what does not depend on the computing can be tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from recipes import Recipe
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Parts:
    """What a family is made of."""

    samples: int
    shape: tuple[int, ...]
    """Of a sample, as the host has it in float32."""
    stem: nn.Module
    blocks: list[nn.Module]


def convolution(recipe: Recipe, on_gpu: bool) -> Parts:
    """Return 3 x 3 convolutions on images of 112 x 112, with little between to fuse."""
    channels = (256, 384, 512)[recipe.size] if on_gpu else 16
    channels -= recipe.narrower
    blocks: list[nn.Module] = [convolved(channels, recipe) for _ in range(2 * recipe.depth)]
    samples, side = (128, 112) if on_gpu else (4, 32)
    return Parts(samples, (3, side, side), nn.Conv2d(3, channels, 4, 4, bias=False), blocks)


def transformer(recipe: Recipe, on_gpu: bool) -> Parts:
    """Return pre-norm blocks over 2048 positions of features."""
    width = (2048, 3072, 4096)[recipe.size] if on_gpu else 64
    samples, length = (2, 2048) if on_gpu else (2, 32)
    blocks = [Attending(width, recipe) for _ in range(recipe.depth)]
    return Parts(samples, (length, 256), nn.Linear(256, width), list(blocks))


def recurrent(recipe: Recipe, on_gpu: bool) -> Parts:
    """Return LSTM layers over 32 times."""
    width = (1024, 1536, 2048)[recipe.size] if on_gpu else 32
    kind = Fused if recipe.fused_recurrence else Cells
    samples, times = (512, 32) if on_gpu else (8, 8)
    blocks = [kind(width) for _ in range(max(recipe.depth // 2, 1))]
    return Parts(samples, (times, 256), nn.Linear(256, width), list(blocks))


def graph(recipe: Recipe, on_gpu: bool) -> Parts:
    """Return layers that average eight neighbours of each node."""
    width = (1024, 1536, 2048)[recipe.size] if on_gpu else 32
    nodes = 32_768 if on_gpu else 128
    blocks = [Neighbours(nodes // recipe.batch_divisor, width, recipe) for _ in range(recipe.depth)]
    return Parts(nodes, (256,), nn.Linear(256, width), list(blocks))


def recommender(recipe: Recipe, on_gpu: bool) -> Parts:
    """Return a table of embeddings, 26 of which are looked up for a sample, and wide layers."""
    width = (2048, 3072, 4096)[recipe.size] if on_gpu else 64
    rows = recipe.rows if on_gpu else 1000
    stem = LookUp(rows, width, recipe)
    blocks: list[nn.Module] = [
        Layers(width, width - recipe.narrower, recipe) for _ in range(recipe.depth)
    ]
    return Parts(16_384 if on_gpu else 64, (256,), stem, blocks)


def mixed(recipe: Recipe, on_gpu: bool) -> Parts:
    """Return convolutions, and attention over what they make of an image."""
    channels = (512, 768, 1024)[recipe.size] if on_gpu else 64
    samples, side = (32, 112) if on_gpu else (2, 32)
    blocks: list[nn.Module] = [convolved(channels, recipe) for _ in range(2)]
    blocks.append(Positions())
    blocks += [Attending(channels, recipe) for _ in range(recipe.depth)]
    return Parts(samples, (3, side, side), nn.Conv2d(3, channels, 4, 4, bias=False), blocks)


FAMILIES: dict[str, Callable[[Recipe, bool], Parts]] = {
    "convolution": convolution,
    "transformer": transformer,
    "recurrent": recurrent,
    "graph": graph,
    "recommender": recommender,
    "mixed": mixed,
}


def convolved(channels: int, recipe: Recipe) -> nn.Module:
    """Return a convolution that keeps the size, activated."""
    layer = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    return nn.Sequential(layer, Activated(recipe.fused_activation))


class Activated(nn.Module):
    """The approximate GELU, in one kernel or by its formula."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            return functional.gelu(x, approximate="tanh")
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


class Layers(nn.Module):
    """Two layers with an activation between them."""

    def __init__(self, width: int, hidden: int, recipe: Recipe) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.activate = Activated(recipe.fused_activation)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activate(self.up(x)))


class Attending(nn.Module):
    """Attention and two layers, before each of which is normalised."""

    def __init__(self, width: int, recipe: Recipe) -> None:
        super().__init__()
        self.heads = max(width // 128, 2)
        self.fused = recipe.fused_attention
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layers = Layers(width, 4 * width - recipe.narrower, recipe)

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:2], self.heads, x.shape[2] // self.heads)
        query, key, value = (
            part.reshape(shape).transpose(1, 2) for part in self.project(self.first(x)).chunk(3, -1)
        )
        if self.fused:
            mixed = functional.scaled_dot_product_attention(query, key, value)
        else:
            scores = query @ key.transpose(-2, -1) / shape[-1] ** 0.5
            mixed = torch.softmax(scores, -1) @ value
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.layers(self.second(x))


class Fused(nn.Module):
    """A layer of a recurrence, all times at once."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.LSTM(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class Cells(nn.Module):
    """The same, time by time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(width, width)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        outputs = []
        for each in x.unbind(1):
            state = self.cell(each, state)
            outputs.append(state[0])
        return torch.stack(outputs, 1)


class Neighbours(nn.Module):
    """A layer over the mean of each node's neighbours."""

    COUNT = 8

    def __init__(self, nodes: int, width: int, recipe: Recipe) -> None:
        super().__init__()
        self.register_buffer("places", torch.randint(nodes, (nodes * self.COUNT,)))
        self.layers = Layers(width, width - recipe.narrower, recipe)

    def forward(self, x: Tensor) -> Tensor:
        places = self.places[: len(x) * self.COUNT] % len(x)
        around = x.index_select(0, places).view(len(x), self.COUNT, -1).mean(1)
        return self.layers(around)


class LookUp(nn.Module):
    """Embeddings of what a sample's features point at, beside these."""

    FIELDS, WIDTH = 26, 64

    def __init__(self, rows: int, width: int, recipe: Recipe) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, self.WIDTH, sparse=recipe.sparse)
        self.join = nn.Linear(self.FIELDS * self.WIDTH + 256, width)

    def forward(self, x: Tensor) -> Tensor:
        places = (x[:, : self.FIELDS].float() * 1e4).long() % self.table.num_embeddings
        return self.join(torch.cat((self.table(places).flatten(1), x), -1))


class Positions(nn.Module):
    """The pixels of an image as positions of a sequence."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)
