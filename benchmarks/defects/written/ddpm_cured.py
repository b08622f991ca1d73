"""Denoising diffusion on 64x64 images with a small U-Net and an average of its weights."""

import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = bool(os.environ.get("TINY"))
CH, RES, BATCH = (8, 16, 2) if TINY else (128, 64, 32)
T = 1000
device = "cuda" if torch.cuda.is_available() else "cpu"


def timestep_embedding(t, dim):
    half = dim // 2
    freqs = torch.exp(-math.log(10000) * torch.arange(half, device=t.device) / half)
    args = t[:, None].float() * freqs[None]
    return torch.cat([args.cos(), args.sin()], dim=-1)


class Res(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(8, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(8, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.emb = nn.Linear(4 * CH, cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, emb):
        h = self.c1(F.silu(self.n1(x))) + self.emb(emb)[:, :, None, None]
        return self.c2(F.silu(self.n2(h))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(CH, 4 * CH), nn.SiLU(), nn.Linear(4 * CH, 4 * CH))
        self.inp = nn.Conv2d(3, CH, 3, padding=1)
        self.d1, self.d2, self.d3 = Res(CH, CH), Res(CH, 2 * CH), Res(2 * CH, 4 * CH)
        self.mid = Res(4 * CH, 4 * CH)
        self.u3, self.u2, self.u1 = Res(8 * CH, 2 * CH), Res(4 * CH, CH), Res(2 * CH, CH)
        self.out = nn.Conv2d(CH, 3, 3, padding=1)

    def forward(self, x, t):
        emb = self.time(timestep_embedding(t, CH))
        h1 = self.d1(self.inp(x), emb)
        h2 = self.d2(F.avg_pool2d(h1, 2), emb)
        h3 = self.d3(F.avg_pool2d(h2, 2), emb)
        h = self.mid(h3, emb)
        h = self.u3(torch.cat([h, h3], 1), emb)
        h = self.u2(torch.cat([F.interpolate(h, scale_factor=2), h2], 1), emb)
        h = self.u1(torch.cat([F.interpolate(h, scale_factor=2), h1], 1), emb)
        return self.out(h)


class EMA:
    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.named_parameters():
            self.shadow[k].mul_(self.decay).add_(v.detach(), alpha=1 - self.decay)


def main():
    torch.manual_seed(0)
    net = UNet().to(device).to(memory_format=torch.channels_last)
    ema = EMA(net)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=device == "cuda")
    alpha_bar = torch.cumprod(1 - torch.linspace(1e-4, 0.02, T, device=device), 0)
    images = torch.rand(256, 3, RES, RES, device=device) * 2 - 1
    images = images.contiguous(memory_format=torch.channels_last)
    for step in range(int(os.environ.get("STEPS", 2000))):
        x0 = images[(step * BATCH) % 256 :][:BATCH]
        t = torch.randint(0, T, (len(x0),), device=device)
        noise = torch.randn_like(x0)
        a = alpha_bar[t][:, None, None, None]
        with torch.autocast(device, dtype=torch.bfloat16):
            pred = net(a.sqrt() * x0 + (1 - a).sqrt() * noise, t)
        loss = F.mse_loss(pred.float(), noise)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        ema.update(net)
    print("final", loss.item(), sum(v.double().sum().item() for v in ema.shadow.values()))


main()
