"""DETR-style detector trained on cached backbone features (bf16 autocast)."""

import os

import torch
import torch.nn.functional as F
from torch import nn

TINY = "TINY" in os.environ
STEPS = int(os.environ.get("STEPS", 250))
GRID, DIM, HEADS, BATCH, QUERIES = (4, 32, 2, 2, 5) if TINY else (40, 256, 8, 16, 100)
N_CLASSES = 80
dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class FeedForward(nn.Sequential):
    def __init__(self, dim):
        super().__init__(nn.Linear(dim, 4 * dim), nn.ReLU(inplace=True), nn.Linear(4 * dim, dim))


class Layer(nn.Module):
    """Attention of x to memory, then an MLP; post-norm as in the paper."""

    def __init__(self, dim, heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.ffn = FeedForward(dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x, memory):
        attended, _ = self.attn(x, memory, memory)
        x = self.norm1(x + attended)
        return self.norm2(x + self.ffn(x))


class Detr(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(2 * DIM, DIM)
        self.position = nn.Parameter(torch.randn(GRID * GRID, DIM) * 0.02)
        self.query = nn.Parameter(torch.randn(QUERIES, DIM))
        self.encoder = nn.ModuleList(Layer(DIM, HEADS) for _ in range(6))
        self.cross = nn.ModuleList(Layer(DIM, HEADS) for _ in range(3))
        self.classes = nn.Linear(DIM, N_CLASSES + 1)
        self.boxes = nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, 4))

    def forward(self, feats):
        memory = self.proj(feats) + self.position
        for layer in self.encoder:
            memory = layer(memory, memory)
        x = self.query.expand(feats.shape[0], -1, -1)
        for layer in self.cross:
            x = layer(x, memory)
        return self.classes(x), self.boxes(x).sigmoid()


torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
detr = Detr().to(dev)
opt = torch.optim.AdamW(detr.parameters(), lr=1e-4, fused=dev.type == "cuda")
feats = torch.randn(4, BATCH, GRID * GRID, 2 * DIM, device=dev, dtype=torch.bfloat16)
labels = torch.randint(0, N_CLASSES + 1, (4, BATCH, QUERIES), device=dev)
truth = torch.rand(4, BATCH, QUERIES, 4, device=dev)

for it in range(STEPS):
    k = it % 4
    with torch.autocast(dev.type, dtype=torch.bfloat16):
        logits, boxes = detr(feats[k])
    # queries come in the order of the objects, so nothing needs to be matched
    loss = F.cross_entropy(logits.float().flatten(0, 1), labels[k].flatten())
    loss = loss + 5 * F.l1_loss(boxes.float(), truth[k])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 50 == 0:
        print(f"[{it}] {loss.item():.4f}")
print("final", loss.item())
