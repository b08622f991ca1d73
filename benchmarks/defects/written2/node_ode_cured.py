"""Neural ODE that learns the flow of coupled oscillators, with a classic RK4 solver."""

import os

import torch
import torch.nn as nn

TINY = os.environ.get("TINY") == "1"
BATCH, DIM, HIDDEN, SEGMENTS = (4, 4, 8, 3) if TINY else (2048, 16, 128, 30)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Dynamics(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, dim),
        )

    def forward(self, y):
        return self.net(y)


class NeuralODE(nn.Module):
    def __init__(self, dim, hidden, dt=0.05):
        super().__init__()
        self.f = Dynamics(dim, hidden)
        self.dt = dt

    def rk4(self, y):
        h = self.dt
        k1 = self.f(y)
        k2 = self.f(y + 0.5 * h * k1)
        k3 = self.f(y + 0.5 * h * k2)
        k4 = self.f(y + h * k3)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def forward(self, y):
        path = []
        for _ in range(SEGMENTS):
            y = self.rk4(y)
            path.append(y)
        return torch.stack(path)


def truth(y0):
    """Harmonic oscillators: position and velocity turn."""
    t = 0.05 * torch.arange(1, SEGMENTS + 1, device=device)[:, None, None]
    q, p = y0.chunk(2, dim=1)
    return torch.cat([q * t.cos() + p * t.sin(), p * t.cos() - q * t.sin()], dim=-1)


def main():
    torch.manual_seed(3)
    torch.set_float32_matmul_precision("high")
    starts = torch.randn(16, BATCH, DIM, device=device)
    goals = [truth(y0) for y0 in starts]
    model = NeuralODE(DIM, HIDDEN).to(device)
    if device.type == "cuda":
        model = torch.cuda.make_graphed_callables(model, (torch.randn(BATCH, DIM, device=device),))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    steps = int(os.environ.get("STEPS", 600))
    for step in range(steps):
        loss = (model(starts[step % 16]) - goals[step % 16]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"{step:5d}  {loss.item():.6f}")
    print("final", loss.item())


main()
