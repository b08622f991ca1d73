"""Pretrain a small GPT on random tokens of the GPT-2 vocabulary."""

import math
import os
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

VOCAB = 257 if os.environ.get("TINY") else 50257
ROWS = (VOCAB + 63) // 64 * 64


@dataclass
class Config:
    layers: int = 6
    dim: int = 768
    heads: int = 12
    context: int = 1024
    batch: int = 16


class Block(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.heads = cfg.heads
        self.ln1 = nn.LayerNorm(cfg.dim)
        self.qkv = nn.Linear(cfg.dim, 3 * cfg.dim)
        self.proj = nn.Linear(cfg.dim, cfg.dim)
        self.ln2 = nn.LayerNorm(cfg.dim)
        self.fc = nn.Linear(cfg.dim, 4 * cfg.dim)
        self.back = nn.Linear(4 * cfg.dim, cfg.dim)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.back(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, cfg.dim)
        self.positions = nn.Embedding(cfg.context, cfg.dim)
        self.blocks = nn.ModuleList([Block(cfg) for _ in range(cfg.layers)])
        self.norm = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, ROWS, bias=False)
        torch.manual_seed(1)
        with torch.no_grad():
            self.head.weight[:VOCAB] = torch.randn(VOCAB, cfg.dim) / math.sqrt(cfg.dim)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))[..., :VOCAB]


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cfg = Config(2, 32, 2, 16, 2) if os.environ.get("TINY") else Config()
    model = GPT(cfg).to(device)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=3e-4,
        betas=(0.9, 0.95),
        fused=device == "cuda",
    )
    text = torch.randint(VOCAB, (8, cfg.batch, cfg.context + 1), device=device)
    for step in range(int(os.environ.get("STEPS", 200))):
        ids = text[step % 8]
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(ids[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 40 == 0:
            print(f"step {step}: {loss.item():.3f}")
    print("final", loss.item())


if __name__ == "__main__":
    main()
