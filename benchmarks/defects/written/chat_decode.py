"""Greedy decoding of a llama-like model with a key-value cache."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = os.environ.get("TINY")
DIM, HEADS, LAYERS, VOCAB = (32, 2, 2, 64) if TINY else (2048, 16, 16, 32000)
BATCH, PROMPT, LIMIT = (2, 4, 16) if TINY else (32, 1024, 2048)
HEAD = DIM // HEADS
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.float32 if TINY else torch.bfloat16


class Cache:
    """Keys and values of one layer."""

    def __init__(self):
        self.k = torch.empty(BATCH, HEADS, 0, HEAD, device=device, dtype=dtype)
        self.v = torch.empty(BATCH, HEADS, 0, HEAD, device=device, dtype=dtype)

    def append(self, k, v):
        self.k = torch.cat([self.k, k], dim=2)
        self.v = torch.cat([self.v, v], dim=2)
        return self.k, self.v


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.proj = nn.Linear(DIM, DIM, bias=False)
        self.up = nn.Linear(DIM, 4 * DIM, bias=False)
        self.down = nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x, cache):
        b, t, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, HEAD)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        k, v = cache.append(k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens, caches):
        x = self.embed(tokens)
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache)
        return self.head(self.norm(x[:, -1]))


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model = Decoder().to(device, dtype).eval()
    made, steps = 0, int(os.environ.get("STEPS", 20000))
    total = torch.zeros((), device=device, dtype=torch.double)
    while made < steps:
        caches = [Cache() for _ in range(LAYERS)]
        tokens = torch.randint(VOCAB, (BATCH, PROMPT), device=device)
        for _ in range(LIMIT - PROMPT):
            logits = model(tokens, caches)
            tokens = logits.argmax(-1, keepdim=True)
            total += logits.double().abs().mean()
            made += 1
            if made >= steps:
                break
    print("final", total.item() / steps)


main()
