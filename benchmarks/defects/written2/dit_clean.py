"""Diffusion transformer on latents: compiled blocks, bf16, EMA in a few kernels."""

import argparse
import copy
import os

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

TINY = bool(os.environ.get("TINY"))
ap = argparse.ArgumentParser()
ap.add_argument("--dim", type=int, default=32 if TINY else 1024)
ap.add_argument("--depth", type=int, default=2 if TINY else 10)
ap.add_argument("--heads", type=int, default=2 if TINY else 16)
ap.add_argument("--batch", type=int, default=2 if TINY else 64)
ap.add_argument("--steps", type=int, default=int(os.environ.get("STEPS", 120)))
ap.add_argument("--ema", type=float, default=0.9999)
PATCH, SIDE, CHANNELS = 2, 4 if TINY else 32, 4


class DiTBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1 = nn.LayerNorm(dim, elementwise_affine=False)
        self.n2 = nn.LayerNorm(dim, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.ada = nn.Linear(dim, 6 * dim)

    def forward(self, x, c):
        s1, b1, g1, s2, b2, g2 = self.ada(F.silu(c))[:, None].chunk(6, dim=-1)
        h = self.n1(x) * (1 + s1) + b1
        q, k, v = rearrange(self.qkv(h), "b t (n h d) -> n b h t d", n=3, h=self.heads)
        h = F.scaled_dot_product_attention(q, k, v)
        x = x + g1 * self.out(rearrange(h, "b h t d -> b t (h d)"))
        h = self.n2(x) * (1 + s2) + b2
        return x + g2 * self.fc2(F.gelu(self.fc1(h), approximate="tanh"))


class DiT(nn.Module):
    def __init__(self, dim, depth, heads):
        super().__init__()
        tokens = (SIDE // PATCH) ** 2
        self.inp = nn.Linear(CHANNELS * PATCH**2, dim)
        self.place = nn.Parameter(torch.randn(tokens, dim) * 0.02)
        self.time = nn.Embedding(1000, dim)
        self.label = nn.Embedding(1000, dim)
        self.blocks = nn.ModuleList(DiTBlock(dim, heads) for _ in range(depth))
        self.out = nn.Linear(dim, CHANNELS * PATCH**2)

    def forward(self, x, t, y):
        c = (self.time(t) + self.label(y)).to(torch.bfloat16)
        x = (self.inp(x) + self.place).to(torch.bfloat16)
        for block in self.blocks:
            x = block(x, c)
        return self.out(x)


def main(args):
    dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = DiT(args.dim, args.depth, args.heads).to(dev)
    shadow = copy.deepcopy(model).requires_grad_(False)
    mine, theirs = list(model.parameters()), list(shadow.parameters())
    if not TINY:
        for block in model.blocks:
            block.compile()
    opt = torch.optim.AdamW(mine, lr=1e-4, weight_decay=0.0, fused=dev.type == "cuda")
    bar = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, device=dev), 0)
    latents = torch.randn(4, args.batch, CHANNELS, SIDE, SIDE, device=dev)
    patches = rearrange(
        latents, "n b c (h p) (w q) -> n b (h w) (c p q)", p=PATCH, q=PATCH
    ).contiguous()
    classes = torch.randint(1000, (4, args.batch), device=dev)
    for i in range(args.steps):
        x = patches[i % 4]
        t = torch.randint(1000, (args.batch,), device=dev)
        noise = torch.randn_like(x)
        a = bar[t][:, None, None]
        with torch.autocast(dev.type, torch.bfloat16):
            guess = model(a.sqrt() * x + (1 - a).sqrt() * noise, t, classes[i % 4])
        loss = F.mse_loss(guess.float(), noise)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        with torch.no_grad():
            torch._foreach_lerp_(theirs, mine, 1 - args.ema)
        if i % 40 == 0:
            print(f"iteration {i} loss {loss.item():.4f}")
    print("final", loss.item())


if __name__ == "__main__":
    main(ap.parse_args())
