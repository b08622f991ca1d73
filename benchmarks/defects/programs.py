"""A program made of a recipe: its model, its data and its loop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import cycle
from typing import Any

import torch
from models import FAMILIES, LookUp
from recipes import Recipe
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

BATCHES = 4
"""Different ones where they are made ahead."""
DTYPES = {"bf16": torch.bfloat16, "fp64": torch.float64}
RATE = 1e-6


def steps(recipe: Recipe, device: str) -> Iterator[None]:
    """Yield after each step, for ever."""
    program = Program(recipe, device)
    for batch in program.batches():
        program.step(batch)
        yield


class Model(nn.Module):
    """Blocks, and after each what the recipe does between them."""

    def __init__(self, recipe: Recipe, on_gpu: bool) -> None:
        super().__init__()
        parts = FAMILIES[recipe.family](recipe, on_gpu)
        self.recipe = recipe
        self.samples = max(parts.samples // recipe.batch_divisor, 1)
        self.shape = parts.shape
        self.stem, self.blocks = parts.stem, nn.ModuleList(parts.blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recipe.recomputes else block(x)
            if self.recipe.sync or self.recipe.compiled:
                self._look(x)
        return x

    def _look(self, x: Tensor) -> None:
        """Look at what a block made, as scripts do to log or to check it."""
        sync, seen = self.recipe.sync, x.detach()
        if sync == "item" and seen.flatten()[0].item() > 1e9:
            raise OverflowError
        if sync == "check" and torch.isnan(seen).any():
            raise FloatingPointError
        if sync == "synchronize" and x.is_cuda:
            torch.cuda.synchronize()
        if self.recipe.compiled == "broken":
            print(end="")  # the compiler cannot print


class Samples(Dataset[Tensor]):
    """Samples that take some time to make, each as long as it takes a process."""

    def __init__(self, shape: tuple[int, ...], sample_ms: float, waits: bool) -> None:
        self.shape, self.sample_ms, self.waits = shape, sample_ms, waits

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, number: int) -> Tensor:
        spend(self.sample_ms, self.waits)
        return torch.full(self.shape, number % 7 / 7)


class Program:
    """What a recipe makes: `step` for each of `batches`."""

    def __init__(self, recipe: Recipe, device: str) -> None:
        self.on_gpu = device == "cuda"
        if not self.on_gpu and recipe.precision != "fp64":
            recipe = replace(recipe, precision="fp32")
        self.recipe, self.device = recipe, device
        torch.manual_seed(recipe.seed)
        allowed = recipe.precision in ("tf32", "autocast")
        torch.set_float32_matmul_precision("high" if allowed else "highest")
        torch.backends.cudnn.allow_tf32 = allowed
        self.dtype = DTYPES.get(recipe.precision, torch.float32)
        with torch.device(device):  # where a billion weights are drawn in no time
            model = Model(recipe, self.on_gpu).to(self.dtype)
        if recipe.channels_last and recipe.family in ("convolution", "mixed"):
            model = model.to(memory_format=torch.channels_last)
        self.model = model.train(recipe.trains)
        self.optimizers = list(self._optimizers()) if recipe.trains else []
        self.call: Callable[[Tensor], Tensor] = torch.compile(model) if recipe.compiled else model

    def batches(self) -> Iterator[Tensor]:
        """Yield batches on the device."""
        recipe, shape = self.recipe, (self.model.samples, *self.model.shape)
        if recipe.data == "loader":
            sample_ms = recipe.batch_ms / self.model.samples
            samples = Samples(self.model.shape, sample_ms, recipe.waits_for_storage)
            workers = min(recipe.workers, len(os.sched_getaffinity(0)))
            source: Any = DataLoader(
                samples, self.model.samples, num_workers=workers, pin_memory=self.on_gpu
            )
        else:
            made = [torch.rand(shape) for _ in range(BATCHES)]
            if recipe.data == "pinned" and self.on_gpu:
                made = [each.pin_memory() for each in made]
            if recipe.data == "resident":
                made = [each.to(self.device) for each in made]
            source = cycle(made)
        for batch in source:
            yield batch.to(self.device, non_blocking=recipe.data != "pageable")

    def step(self, batch: Tensor) -> None:
        """Take one step."""
        recipe = self.recipe
        if recipe.host_ms:
            spend(recipe.host_ms, waits=False)
        if recipe.scalars:
            self._send(recipe.scalars)
        if not recipe.trains:
            with torch.inference_mode():
                self._deliver(self._computed(batch))
            return
        for piece in batch.chunk(recipe.pieces):
            output = self._computed(piece)
            loss = output.square().mean()
            loss.backward()
            if recipe.sync == "loss":
                loss.item()
        self._deliver(output.detach())
        if recipe.sync == "gradients":
            for each in self.model.parameters():
                each.grad.norm().item()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=not recipe.zeroes)
        if recipe.empties_cache and self.on_gpu:
            torch.cuda.empty_cache()

    def _computed(self, batch: Tensor) -> Tensor:
        batch = batch.to(self.dtype)
        if batch.dim() == 4 and self.recipe.channels_last:
            batch = batch.contiguous(memory_format=torch.channels_last)
        casts = self.recipe.precision == "autocast"
        with torch.autocast(self.device, torch.bfloat16) if casts else nullcontext():
            return self.call(batch)

    def _deliver(self, output: Tensor) -> None:
        if self.recipe.to_host:
            output.float().cpu()

    def _send(self, count: int) -> None:
        """Send some values to the device one by one, as for weights of samples."""
        for number in range(count):
            torch.tensor(float(number)).to(self.device)

    def _optimizers(self) -> Iterator[torch.optim.Optimizer]:
        """Yield one for the layers, and one for a table of embeddings."""
        kind = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}
        stem = self.model.stem
        tables = [stem.table.weight] if isinstance(stem, LookUp) else []
        rest = [each for name, each in self.model.named_parameters() if "table" not in name]
        yield torch.optim.AdamW(rest, RATE, **kind[self.recipe.optimizer])
        if tables:
            yield torch.optim.SGD(tables, RATE)


def spend(milliseconds: float, waits: bool) -> None:
    """Take so much time, computing in Python or waiting."""
    if waits:
        time.sleep(milliseconds / 1e3)
        return
    until = time.perf_counter() + milliseconds / 1e3
    while time.perf_counter() < until:
        pass
