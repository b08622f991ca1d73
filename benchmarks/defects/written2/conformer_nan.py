"""Conformer encoder with a frame classifier, compiled block by block."""

import os

import torch
from torch import nn
from torch.nn import functional as F

TINY = bool(os.environ.get("TINY"))
DIM, HEADS, BLOCKS, KERNEL = (16, 2, 2, 5) if TINY else (512, 8, 8, 31)
BATCH, FRAMES, PHONES = (2, 12, 7) if TINY else (24, 500, 64)
COMPILE = not TINY
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.a = nn.Linear(DIM, 4 * DIM)
        self.b = nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        return self.b(F.silu(self.a(self.norm(x))))


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, t, DIM))


class ConvModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.pointwise1 = nn.Linear(DIM, 2 * DIM)
        self.depthwise = nn.Conv1d(DIM, DIM, KERNEL, padding=KERNEL // 2, groups=DIM)
        self.norm2 = nn.LayerNorm(DIM)
        self.pointwise2 = nn.Linear(DIM, DIM)

    def forward(self, x):
        x = F.glu(self.pointwise1(self.norm(x)), dim=-1)
        x = self.depthwise(x.transpose(1, 2)).transpose(1, 2)
        return self.pointwise2(F.silu(self.norm2(x)))


class ConformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp1, self.mlp2 = Mlp(), Mlp()
        self.attention, self.conv = SelfAttention(), ConvModule()
        self.norm = nn.LayerNorm(DIM)

    def forward(self, x):
        x = x + 0.5 * self.mlp1(x)
        x = x + self.attention(x)
        if torch.isnan(x).any():
            raise FloatingPointError("attention overflowed")
        x = x + self.conv(x)
        return self.norm(x + 0.5 * self.mlp2(x))


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(80, DIM)
        self.blocks = nn.ModuleList(ConformerBlock() for _ in range(BLOCKS))
        self.out = nn.Linear(DIM, PHONES)

    def forward(self, mels):
        x = self.inp(mels)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Recognizer().to(device)
    if COMPILE:
        for block in model.blocks:
            block.compile()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=device.type == "cuda")
    mels = torch.randn(6, BATCH, FRAMES, 80, device=device)
    phones = torch.randint(PHONES, (6, BATCH, FRAMES), device=device)
    for step in range(int(os.environ.get("STEPS", 300))):
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(mels[step % 6])
        loss = F.cross_entropy(logits.float().flatten(0, 1), phones[step % 6].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print("step", step, "loss", loss.item())
    print("final", loss.item())


if __name__ == "__main__":
    main()
