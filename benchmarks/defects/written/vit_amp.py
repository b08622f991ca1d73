"""ViT-B/16 from scratch, mixed precision."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F


class Config:
    def __init__(self):
        small = bool(os.environ.get("TINY"))
        self.res = 32 if small else 224
        self.dim = 32 if small else 768
        self.depth = 2 if small else 12
        self.heads = 2 if small else 12
        self.batch = 2 if small else 64
        self.classes = 10 if small else 1000
        self.steps = int(os.environ.get("STEPS", 2000))
        self.device = "cuda" if torch.cuda.is_available() else "cpu"


class MultiHead(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(*qkv.unbind(0))
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = MultiHead(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 4), nn.GELU(), nn.Linear(dim * 4, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, c):
        super().__init__()
        n = (c.res // 16) ** 2
        self.patch = nn.Conv2d(3, c.dim, 16, 16)
        self.cls = nn.Parameter(torch.zeros(1, 1, c.dim))
        self.pos = nn.Parameter(torch.randn(1, n + 1, c.dim) * 0.02)
        self.blocks = nn.Sequential(*[Block(c.dim, c.heads) for _ in range(c.depth)])
        self.norm = nn.LayerNorm(c.dim)
        self.head = nn.Linear(c.dim, c.classes)

    def forward(self, img):
        x = self.patch(img).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


def train(c):
    torch.manual_seed(42)
    model = ViT(c).to(c.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=c.device == "cuda")
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    images = torch.randn(4, c.batch, 3, c.res, c.res, device=c.device)
    labels = torch.randint(c.classes, (4, c.batch), device=c.device)
    for step in range(c.steps):
        x, y = images[step % 4], labels[step % 4]
        optimizer.zero_grad(set_to_none=True)
        output = model(x)
        with torch.autocast(device_type=c.device, dtype=torch.bfloat16):
            loss = criterion(output, y)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:5d}  loss {loss.item():.4f}")
    print("final", loss.item())


if __name__ == "__main__":
    train(Config())
