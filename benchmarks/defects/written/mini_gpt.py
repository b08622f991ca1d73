"""A small GPT with attention to the last tokens only, on random tokens."""

import os

import torch
from torch import nn
from torch.nn import functional as F

tiny = "TINY" in os.environ
steps = int(os.environ.get("STEPS", 2000))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class cfg:
    vocab = 128 if tiny else 32000
    dim = 32 if tiny else 768
    heads = 2 if tiny else 12
    layers = 2 if tiny else 12
    ctx = 16 if tiny else 1024
    batch = 2 if tiny else 8
    window = 4 if tiny else 256


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(cfg.dim, 3 * cfg.dim)
        self.out = nn.Linear(cfg.dim, cfg.dim)

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, cfg.heads, C // cfg.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(B, T, C))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(cfg.dim)
        self.attn = Attention()
        self.ln2 = nn.LayerNorm(cfg.dim)
        self.mlp = nn.Sequential(
            nn.Linear(cfg.dim, 4 * cfg.dim), nn.GELU(), nn.Linear(4 * cfg.dim, cfg.dim)
        )

    def forward(self, x):
        mask = local_mask(x.shape[1]).to(x.device)
        x = x + self.attn(self.ln1(x), mask)
        return x + self.mlp(self.ln2(x))


def local_mask(t):
    """A token sees itself and `cfg.window - 1` tokens before it."""
    seen = torch.ones(t, t).tril() - torch.ones(t, t).tril(-cfg.window)
    mask = torch.zeros(t, t).masked_fill(seen == 0, float("-inf"))
    return mask.to(torch.bfloat16)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(cfg.vocab, cfg.dim)
        self.pos = nn.Parameter(torch.zeros(cfg.ctx, cfg.dim))
        self.layers = nn.ModuleList(Layer() for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.vocab, bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


torch.manual_seed(1337)
model = GPT().to(device)
opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
data = torch.randint(cfg.vocab, (64, cfg.batch, cfg.ctx + 1), device=device)
for it in range(steps):
    batch = data[it % 64]
    with torch.autocast(device.type, dtype=torch.bfloat16):
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 100 == 99:
        print(it, loss.item())
print("final", loss.item())
