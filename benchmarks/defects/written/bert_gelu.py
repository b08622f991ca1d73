"""Masked language modelling; GELU as an autograd function of our own, to know its gradient."""

import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = bool(os.environ.get("TINY"))
D, L, H, SEQ, BS, V = (32, 2, 2, 16, 2, 100) if TINY else (768, 8, 12, 512, 32, 8192)
C = math.sqrt(2 / math.pi)
device = "cuda" if torch.cuda.is_available() else "cpu"


class TanhGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        inner = C * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1.0 + torch.tanh(inner))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        inner = C * (x + 0.044715 * x * x * x)
        t = torch.tanh(inner)
        slope = C * (1.0 + 3 * 0.044715 * x * x)
        return grad * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)


class Gelu(nn.Module):
    def forward(self, x):
        return TanhGelu.apply(x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.o = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.ff = nn.Sequential(nn.Linear(D, 4 * D), Gelu(), nn.Linear(4 * D, D))

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, s, 3, H, D // H).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, D)
        x = x + self.o(a)
        return x + self.ff(self.n2(x))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Embedding(SEQ, D)
        self.body = nn.Sequential(*(Encoder() for _ in range(L)))
        self.head = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, V))

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight
        return self.head(self.body(x))


def main():
    torch.manual_seed(0)
    model = Bert().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    corpus = torch.randint(1, V, (32, BS, SEQ), device=device)
    drop = torch.rand(32, BS, SEQ, device=device) < 0.15
    for step in range(int(os.environ.get("STEPS", 2000))):
        ids, mask = corpus[step % 32], drop[step % 32]
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(ids.masked_fill(mask, 0))
            target = ids.masked_fill(~mask, -100)
            loss = F.cross_entropy(logits.view(-1, V), target.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"{step}: {loss.item():.3f}")
    print("final", loss.item())


if __name__ == "__main__":
    main()
