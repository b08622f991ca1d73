"""MLP-Mixer; gradients are clipped to a norm of one."""

import os

import torch
import torch.nn as nn

TINY = os.environ.get("TINY") == "1"
DIM, DEPTH, BATCH, RES = (16, 2, 2, 32) if TINY else (384, 24, 32, 224)
PATCH = 16
TOKENS = (RES // PATCH) ** 2
device = "cuda" if torch.cuda.is_available() else "cpu"


class Mlp(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class MixerLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM)
        self.tokens = Mlp(TOKENS, 2 * TOKENS)
        self.norm2 = nn.LayerNorm(DIM)
        self.channels = Mlp(DIM, 4 * DIM)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        self.stem = nn.Conv2d(3, DIM, PATCH, PATCH)
        self.layers = nn.Sequential(*(MixerLayer() for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, classes)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.layers(x)).mean(dim=1))


def clip_gradients(model, max_norm):
    total = 0.0
    for p in model.parameters():
        if p.grad is not None:
            total += p.grad.norm().item() ** 2
    total = total**0.5
    if total > max_norm:
        for p in model.parameters():
            if p.grad is not None:
                p.grad.mul_(max_norm / (total + 1e-6))


def main():
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    model = Mixer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device == "cuda")
    loss_fn = nn.CrossEntropyLoss()
    x = torch.randn(4, BATCH, 3, RES, RES, device=device)
    y = torch.randint(1000, (4, BATCH), device=device)
    for step in range(int(os.environ.get("STEPS", 2000))):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = loss_fn(model(x[step % 4]), y[step % 4])
        loss.backward()
        clip_gradients(model, 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(step, loss.item())
    print("final", loss.item())


main()
