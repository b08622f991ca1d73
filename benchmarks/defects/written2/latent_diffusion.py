"""Latent diffusion: a frozen encoder, and a denoiser that learns to predict the noise."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = os.getenv("TINY")
RES, BATCH, WIDTH = (32, 2, 16) if TINY else (256, 16, 128)
T = 1000
dev = "cuda" if torch.cuda.is_available() else "cpu"
torch.backends.cudnn.benchmark = True


class Res(nn.Module):
    def __init__(self, c, emb=None):
        super().__init__()
        self.n1, self.n2 = nn.GroupNorm(8, c), nn.GroupNorm(8, c)
        self.c1, self.c2 = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)
        self.emb = nn.Linear(emb, c) if emb else None

    def forward(self, x, emb=None):
        h = self.c1(F.silu(self.n1(x)))
        if self.emb is not None:
            h = h + self.emb(emb)[:, :, None, None]
        return x + self.c2(F.silu(self.n2(h)))


class Encoder(nn.Module):
    """The encoder half of an autoencoder: 8 times smaller, 4 channels."""

    def __init__(self, w=WIDTH // 2):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, w, 3, padding=1), Res(w), nn.Conv2d(w, w, 3, 2, 1),
            Res(w), nn.Conv2d(w, 2 * w, 3, 2, 1), Res(2 * w), nn.Conv2d(2 * w, 4 * w, 3, 2, 1),
            Res(4 * w), nn.GroupNorm(8, 4 * w), nn.SiLU(), nn.Conv2d(4 * w, 4, 3, padding=1),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x)


class Denoiser(nn.Module):
    def __init__(self, w=2 * WIDTH):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(w, w), nn.SiLU(), nn.Linear(w, w))
        self.w = w
        self.inp = nn.Conv2d(4, w, 3, padding=1)
        self.a, self.down = Res(w, w), nn.Conv2d(w, 2 * w, 3, 2, 1)
        self.b, self.c = Res(2 * w, w), Res(2 * w, w)
        self.up = nn.ConvTranspose2d(2 * w, w, 2, 2)
        self.d = Res(w, w)
        self.out = nn.Conv2d(w, 4, 3, padding=1)

    def forward(self, x, t):
        freqs = torch.exp(torch.arange(self.w // 2, device=t.device) * (-9.2 / (self.w // 2)))
        angle = t[:, None] * freqs
        emb = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        x = self.a(self.inp(x), emb)
        h = self.c(self.b(self.down(x), emb), emb)
        return self.out(self.d(x + self.up(h), emb))


def train(steps):
    torch.manual_seed(0)
    encoder = Encoder().to(dev, memory_format=torch.channels_last).eval()
    net = Denoiser().to(dev, memory_format=torch.channels_last)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=dev == "cuda")
    alpha_bar = torch.cumprod(1 - torch.linspace(1e-4, 0.02, T), 0).to(dev)
    photos = torch.rand(4, BATCH, 3, RES, RES, device=dev) * 2 - 1
    g = torch.Generator(dev).manual_seed(1)
    for step in range(steps):
        images = photos[step % 4].contiguous(memory_format=torch.channels_last)
        with torch.autocast(dev, torch.bfloat16):
            latents = encoder(images) * 0.18
            t = torch.randint(T, (BATCH,), device=dev, generator=g)
            noise = torch.randn(latents.shape, device=dev, generator=g)
            a = alpha_bar[t][:, None, None, None]
            noisy = a.sqrt() * latents + (1 - a).sqrt() * noise
            loss = F.mse_loss(net(noisy, t).float(), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"{step:>6} {loss.item():.4f}")
    print("final", loss.item())


if __name__ == "__main__":
    train(int(os.getenv("STEPS", "200")))
