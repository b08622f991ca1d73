"""A decoder over symbolic music with attention written out as in the paper."""

import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

small = "TINY" in os.environ
hp = dict(
    vocab=64 if small else 512,
    d=32 if small else 512,
    heads=2 if small else 8,
    layers=2 if small else 6,
    length=16 if small else 2048,
    batch=2 if small else 8,
    lr=1e-4,
    steps=int(os.environ.get("STEPS", "2000")),
)
device = "cuda" if torch.cuda.is_available() else "cpu"


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        d = hp["d"]
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.o = nn.Linear(d, d)
        mask = torch.ones(hp["length"], hp["length"]).triu(1).bool()
        self.register_buffer("mask", mask, persistent=False)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], hp["heads"], -1).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(self.mask, float("-inf"))
        out = torch.softmax(scores, dim=-1).to(v.dtype) @ v
        return self.o(out.transpose(1, 2).reshape(x.shape))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        d = hp["d"]
        self.attention = SelfAttention()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.feed = nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class MusicTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(hp["vocab"], hp["d"])
        self.position = nn.Embedding(hp["length"], hp["d"])
        self.layers = nn.ModuleList([DecoderLayer() for _ in range(hp["layers"])])
        self.out = nn.Linear(hp["d"], hp["vocab"])

    def forward(self, notes):
        x = self.embed(notes) + self.position.weight[: notes.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


torch.manual_seed(2)
net = MusicTransformer().to(device)
adam = torch.optim.Adam(net.parameters(), lr=hp["lr"], fused=device == "cuda")
songs = torch.randint(hp["vocab"], (16, hp["batch"], hp["length"] + 1), device=device)
for step in range(hp["steps"]):
    song = songs[step % len(songs)]
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = net(song[:, :-1])
        loss = F.cross_entropy(logits.transpose(1, 2), song[:, 1:])
    adam.zero_grad(set_to_none=True)
    loss.backward()
    adam.step()
    if step % 100 == 0:
        print("step", step, "loss", round(loss.item(), 4))
print("final", loss.item())
