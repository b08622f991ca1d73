"""PatchTST-like forecaster: windows from workers that stay, pinned memory, compiled blocks."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

TINY = bool(os.environ.get("TINY"))
SERIES, HISTORY, HORIZON, PATCH = (2, 32, 8, 8) if TINY else (8, 512, 96, 8)
BATCH, DIM, HEADS, DEPTH = (2, 16, 2, 2) if TINY else (192, 512, 8, 6)
STEPS = int(os.environ.get("STEPS", 150))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Series(Dataset):
    def __init__(self):
        t = np.arange(200_000, dtype=np.float32)[:, None]
        phase = np.linspace(0, 3, SERIES, dtype=np.float32)
        self.values = np.sin(t / 40 + phase) + 0.1 * np.sin(t / 3)

    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, i):
        start = (i * 7919) % (len(self.values) - HISTORY - HORIZON)
        window = self.values[start : start + HISTORY + HORIZON].T
        return window[:, :HISTORY].copy(), window[:, HISTORY:].copy()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.n2(x))))


class PatchModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(PATCH, DIM)
        self.place = nn.Parameter(torch.randn(HISTORY // PATCH, DIM) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.head = nn.Linear(HISTORY // PATCH * DIM, HORIZON)

    def forward(self, past):
        x = self.inp(past.flatten(0, 1).unflatten(1, (-1, PATCH))) + self.place
        x = x.to(torch.bfloat16)
        for block in self.blocks:
            x = block(x)
        return self.head(x.flatten(1)).unflatten(0, past.shape[:2])


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    loader = DataLoader(
        Series(),
        BATCH,
        num_workers=1 if TINY else 6,
        pin_memory=device.type == "cuda",
        persistent_workers=True,
        prefetch_factor=2,
    )
    model = PatchModel().to(device)
    if not TINY:
        for block in model.blocks:
            block.compile()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    for step, (past, future) in enumerate(loader):
        past = past.to(device, non_blocking=True)
        future = future.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16):
            guess = model(past)
        loss = F.mse_loss(guess.float(), future)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print("step", step, "mse", loss.item())
    print("final", loss.item())


if __name__ == "__main__":
    main()
