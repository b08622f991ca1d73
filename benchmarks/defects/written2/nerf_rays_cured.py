"""A plain NeRF: positional encoding, eight wide layers, volume rendering."""

import argparse
import os

import torch
import torch.nn as nn

tiny = os.environ.get("TINY")
p = argparse.ArgumentParser(description=__doc__)
p.add_argument("--rays", type=int, default=8 if tiny else 2048)
p.add_argument("--samples", type=int, default=4 if tiny else 64)
p.add_argument("--width", type=int, default=16 if tiny else 512)
p.add_argument("--iters", type=int, default=int(os.environ.get("STEPS", 300)))
p.add_argument("--lr", type=float, default=5e-4)
p.add_argument("--seed", type=int, default=0)
args = p.parse_args()

dev = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(args.seed)
torch.set_float32_matmul_precision("high")


def encode(x, n):
    freqs = 2.0 ** torch.arange(n, device=x.device)
    angles = (x[..., None, :] * freqs[:, None]).flatten(-2)
    return torch.cat([x, angles.sin(), angles.cos()], -1)


class NeRF(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.trunk = nn.ModuleList()
        n = 3 + 3 * 2 * 10
        for i in range(8):
            self.trunk.append(nn.Linear(n if i == 0 else w + (n if i == 4 else 0), w))
        self.sigma = nn.Linear(w, 1)
        self.color = nn.Sequential(
            nn.Linear(w + 3 + 3 * 2 * 4, w // 2), nn.ReLU(True), nn.Linear(w // 2, 3)
        )

    def forward(self, points, dirs):
        enc = encode(points, 10)
        x = enc
        for i, layer in enumerate(self.trunk):
            if i == 4:
                x = torch.cat([x, enc], -1)
            x = torch.relu_(layer(x))
        d = encode(dirs, 4)[:, None].expand(-1, points.shape[1], -1)
        return torch.relu(self.sigma(x)[..., 0]), torch.sigmoid(self.color(torch.cat([x, d], -1)))


def render(net, origins, dirs):
    t = torch.linspace(2, 6, args.samples, device=dev)
    points = origins[:, None] + dirs[:, None] * t[:, None]
    sigma, rgb = net(points, dirs)
    alpha = 1 - torch.exp(-sigma * (4 / args.samples))
    clear = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[
        :, :-1
    ]
    return ((alpha * clear)[..., None] * rgb).sum(1)


net = NeRF(args.width).to(dev)
opt = torch.optim.Adam(net.parameters(), lr=args.lr, fused=dev == "cuda")
bank = torch.randn(8, args.rays, 6, device=dev)
pixels = torch.rand(8, args.rays, 3, device=dev)
for i in range(args.iters):
    origins, dirs = bank[i % 8].split(3, -1)
    dirs = dirs / dirs.norm(dim=-1, keepdim=True)
    loss = (render(net, origins, dirs) - pixels[i % 8]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 50 == 0:
        print(i, "psnr", -10 * loss.detach().log10().item())
print("final", loss.item())
