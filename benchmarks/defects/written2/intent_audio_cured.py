"""Spoken intent classification from log-mel frames with a transformer encoder.

The corpus is small enough to live on the GPU: one big tensor of padded clips.
"""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

tiny = bool(os.environ.get("TINY"))
MAX_FRAMES = 120 if tiny else 3072  # 30 s of 10 ms, and a little
SHORT, LONG = (10, 40) if tiny else (200, 800)
BATCH, DIM, DEPTH, HEADS = (2, 32, 2, 2) if tiny else (96, 768, 6, 12)
BATCHES, N_MELS, N_INTENTS = 12, 80, 31
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class EncoderLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class IntentNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(4 * N_MELS, DIM)  # four frames are one token
        self.layers = nn.ModuleList(EncoderLayer(DIM) for _ in range(DEPTH))
        self.head = nn.Linear(DIM, N_INTENTS)

    def forward(self, mels, frames):
        b, t, m = mels.shape
        x = self.inp(mels.reshape(b, t // 4, 4 * m))
        valid = torch.arange(t // 4, device=x.device)[None] < (frames[:, None] // 4)
        for layer in self.layers:
            x = layer(x, valid[:, None, None, :])
        valid = valid[..., None].to(x.dtype)
        return self.head((x * valid).sum(1) / valid.sum(1))


def corpus():
    g = torch.Generator().manual_seed(3)
    lengths = torch.randint(SHORT, LONG + 1, (BATCHES, BATCH), generator=g)
    sound = torch.randn(2 * LONG, N_MELS, generator=g).to(device, torch.bfloat16)
    mels = torch.zeros(BATCHES, BATCH, MAX_FRAMES, N_MELS, dtype=torch.bfloat16, device=device)
    for rows, row_lengths in zip(mels, lengths.tolist()):
        for row, n in zip(rows, row_lengths):
            row[:n] = sound[LONG - n // 2 : LONG - n // 2 + n]
    intents = torch.randint(0, N_INTENTS, (BATCHES, BATCH), generator=g)
    return mels, lengths, intents.to(device)


def train():
    torch.manual_seed(0)
    mels, lengths, intents = corpus()
    frames = lengths.to(device)
    net = IntentNet().to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=device.type == "cuda")
    for step in range(int(os.environ.get("STEPS", 300))):
        k = step % BATCHES
        length = (int(lengths[k].max()) + 31) // 32 * 32
        with torch.autocast(device.type, torch.bfloat16):
            scores = net(mels[k, :, :length], frames[k])
        loss = F.cross_entropy(scores.float(), intents[k])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print("step", step, "loss", loss.item())
    print("final", loss.item())


if __name__ == "__main__":
    train()
