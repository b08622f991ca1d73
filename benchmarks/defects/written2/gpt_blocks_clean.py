"""GPT pretraining: bf16 autocast, compiled blocks, fused attention and optimizer."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = bool(os.environ.get("TINY"))
LAYERS, DIM, HEADS, VOCAB = (2, 32, 2, 64) if TINY else (8, 1024, 16, 32768)
BATCH, CONTEXT = (2, 16) if TINY else (16, 1024)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.proj = nn.Linear(DIM, DIM, bias=False)
        self.up = nn.Linear(DIM, 4 * DIM, bias=False)
        self.down = nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.position = nn.Parameter(torch.randn(CONTEXT, DIM) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def loss(self, x, targets):
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())

    def forward(self, ids, targets):
        x = (self.embed(ids) + self.position).to(torch.bfloat16)
        for block in self.blocks:
            x = block(x)
        return self.loss(x, targets)


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = GPT().to(device)
    if not TINY:
        for block in model.blocks:
            block.compile()
        model.loss = torch.compile(model.loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    text = torch.randint(VOCAB, (8, BATCH, CONTEXT + 1), device=device)
    for step in range(int(os.environ.get("STEPS", 150))):
        ids = text[step % 8]
        with torch.autocast(device.type, torch.bfloat16):
            loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())
    print("final", loss.item())


if __name__ == "__main__":
    main()
