"""Gated network over a wide table that lies on the device."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = bool(os.environ.get("TINY"))
ROWS, COLS, HIDDEN, BATCH = (64, 16, 32, 8) if TINY else (500_000, 1024, 8192, 16384)
device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(0)
table = torch.randn(ROWS, COLS, device=device, dtype=torch.bfloat16)
target = torch.randn(ROWS, 1, device=device, dtype=torch.bfloat16)
model = nn.Sequential(
    nn.Linear(COLS, HIDDEN),
    nn.ReLU(inplace=True),
    nn.Linear(HIDDEN, HIDDEN),
    nn.ReLU(inplace=True),
    nn.Linear(HIDDEN, HIDDEN),
    nn.ReLU(inplace=True),
    nn.Linear(HIDDEN, 1),
).to(device, torch.bfloat16)
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
steps = int(os.environ.get("STEPS", 2000))
losses = torch.zeros(steps, device=device)
order = torch.randperm(ROWS, device=device)
for step in range(steps):
    rows = order[step * BATCH % (ROWS - BATCH) :][:BATCH]
    loss = F.mse_loss(model(table[rows]), target[rows])
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    losses[step] = loss.detach()
print("final", losses.mean().item())
