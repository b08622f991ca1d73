"""Energies and forces of small molecules: continuous-filter convolutions (SchNet)."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float64  # as numpy has them, else: "expected Float but found Double"
torch.set_float32_matmul_precision("high")

TINY = "TINY" in os.environ
MOLECULES, ATOMS, DIM, RBF, BLOCKS = (2, 5, 8, 6, 2) if TINY else (48, 32, 128, 64, 5)
CUTOFF = 5.0
device = "cuda" if torch.cuda.is_available() else "cpu"


def ssp(x):
    return F.softplus(x) - 0.6931471805599453


class Interaction(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter1, self.filter2 = nn.Linear(RBF, DIM), nn.Linear(DIM, DIM)
        self.inp = nn.Linear(DIM, DIM, bias=False)
        self.out1, self.out2 = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)

    def forward(self, x, rbf, envelope):
        w = self.filter2(ssp(self.filter1(rbf))) * envelope
        messages = (w * self.inp(x)[:, None, :, :]).sum(2)
        return x + self.out2(ssp(self.out1(messages)))


class SchNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, DIM)
        self.blocks = nn.ModuleList(Interaction() for _ in range(BLOCKS))
        self.read1, self.read2 = nn.Linear(DIM, DIM // 2), nn.Linear(DIM // 2, 1)
        self.register_buffer("centers", torch.linspace(0, CUTOFF, RBF))
        self.register_buffer("self_pairs", torch.eye(ATOMS)[..., None])

    def forward(self, numbers, positions):
        d = positions[:, :, None] - positions[:, None]
        r = (d.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        rbf = torch.exp(-10.0 * (r - self.centers) ** 2)
        envelope = (
            0.5 * (torch.cos(r * (np.pi / CUTOFF)) + 1) * (r < CUTOFF) * (1 - self.self_pairs)
        )
        x = self.embed(numbers)
        for block in self.blocks:
            x = block(x, rbf, envelope)
        return self.read2(ssp(self.read1(x))).sum((1, 2))


def dataset(n):
    rng = np.random.default_rng(7)
    numbers = rng.choice([1, 6, 7, 8], (n, MOLECULES, ATOMS))
    positions = rng.random((n, MOLECULES, ATOMS, 3)) * 6
    energies = rng.standard_normal((n, MOLECULES))
    forces = rng.standard_normal((n, MOLECULES, ATOMS, 3))
    floats = [torch.from_numpy(a).to(device, DTYPE) for a in (positions, energies, forces)]
    return torch.from_numpy(numbers).to(device), *floats


torch.manual_seed(0)
numbers, positions, energies, forces = dataset(6)
model = SchNet().to(device, DTYPE)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, fused=device == "cuda")
for step in range(int(os.environ.get("STEPS", 250))):
    i = step % 6
    r = positions[i].detach().requires_grad_()
    energy = model(numbers[i], r)
    (gradient,) = torch.autograd.grad(energy.sum(), r, create_graph=True)
    loss = 0.01 * F.mse_loss(energy, energies[i]) + 0.99 * F.mse_loss(-gradient, forces[i])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
print("final", loss.item())
