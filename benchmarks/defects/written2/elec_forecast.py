#!/usr/bin/env python
"""Day-ahead load of many substations: dilated convolutions over a week of hours."""

import argparse
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


class Windows(Dataset):
    def __init__(self, load, history, horizon):
        self.load, self.history, self.horizon = load, history, horizon

    def __len__(self):
        return len(self.load) - self.history - self.horizon

    def __getitem__(self, i):
        past = self.load[i : i + self.history]
        future = self.load[i + self.history : i + self.history + self.horizon]
        mean = past.mean(0, keepdims=True)
        std = past.std(0, keepdims=True) + 1e-3
        return torch.from_numpy((past - mean) / std), torch.from_numpy((future - mean) / std)


class TCN(nn.Module):
    def __init__(self, series, hidden, layers, horizon):
        super().__init__()
        self.inp = nn.Conv1d(series, hidden, 1)
        self.convs = nn.ModuleList(
            nn.Conv1d(hidden, hidden, 3, padding=2**i, dilation=2**i) for i in range(layers)
        )
        self.out = nn.Linear(hidden, series * horizon)
        self.shape = (horizon, series)

    def forward(self, x):
        x = self.inp(x.transpose(1, 2))
        for conv in self.convs:
            x = x + torch.relu(conv(x))
        return self.out(x[..., -1]).unflatten(1, self.shape)


def main():
    tiny = bool(os.environ.get("TINY"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4 if tiny else 128)
    parser.add_argument("--workers", type=int, default=2 if tiny else 8)
    parser.add_argument("--epoch-steps", type=int, default=2 if tiny else 12)
    parser.add_argument("--hidden", type=int, default=8 if tiny else 768)
    parser.add_argument("--layers", type=int, default=2 if tiny else 6)
    parser.add_argument("--steps", type=int, default=int(os.environ.get("STEPS", 600)))
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    hours = np.arange(20_000, dtype=np.float32)[:, None]
    phase = np.random.default_rng(0).random((1, 32), dtype=np.float32) * 24
    load = np.sin((hours + phase) * np.float32(2 * np.pi / 24)) + np.float32(2)
    windows = Windows(load, history=96, horizon=24)
    samples = args.epoch_steps * args.batch_size
    shuffle = torch.Generator().manual_seed(1)
    sampler = RandomSampler(windows, num_samples=samples, generator=shuffle)
    loader = DataLoader(
        windows,
        batch_size=args.batch_size,
        sampler=sampler,
        num_workers=args.workers,
        pin_memory=device.type == "cuda",
    )
    model = TCN(32, args.hidden, args.layers, 24).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    step = 0
    epoch = 0
    while step < args.steps:
        for past, future in loader:
            past = past.to(device, non_blocking=True)
            future = future.to(device, non_blocking=True)
            loss = nn.functional.l1_loss(model(past), future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        epoch += 1
        if epoch % 5 == 0:
            print("epoch", epoch, "mae", loss.item())
    print("final", loss.item())


if __name__ == "__main__":
    main()
