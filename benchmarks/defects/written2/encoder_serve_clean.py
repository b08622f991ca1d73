"""Embeds documents for a search index: large batches, bf16, answers leave through pinned memory."""

import os

import torch
from torch import nn
from torch.nn import functional as F

tiny = "TINY" in os.environ
DEPTH, DIM, HEADS, VOCAB = (2, 32, 2, 100) if tiny else (12, 1024, 16, 30000)
BATCH, LENGTH = (2, 8) if tiny else (96, 512)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
on_gpu = device.type == "cuda"


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = self.norm1(x + self.out(y))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, DIM), nn.Embedding(LENGTH, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))

    def forward(self, ids):
        x = self.words(ids) + self.places.weight
        for layer in self.layers:
            x = layer(x)
        return F.normalize(x.mean(1).float(), dim=-1)


class Server:
    def __init__(self):
        self.model = Encoder().to(device, torch.bfloat16).eval()
        if not tiny:
            for layer in self.model.layers:
                layer.compile()
        self.answers = [torch.empty(BATCH, DIM, pin_memory=on_gpu) for _ in range(2)]
        self.done = [torch.cuda.Event() for _ in range(2)] if on_gpu else None

    @torch.inference_mode()
    def submit(self, turn, ids):
        vectors = self.model(ids.to(device, non_blocking=True))
        self.answers[turn].copy_(vectors, non_blocking=True)
        if self.done:
            self.done[turn].record()

    def collect(self, turn):
        if self.done:
            self.done[turn].synchronize()
        return self.answers[turn].sum().item()


def main():
    torch.manual_seed(0)
    server = Server()
    documents = torch.randint(VOCAB, (8, BATCH, LENGTH))
    if on_gpu:
        documents = documents.pin_memory()
    check = 0.0
    steps = int(os.environ.get("STEPS", 150))
    for step in range(steps):
        server.submit(step % 2, documents[step % 8])
        if step:
            check += server.collect((step - 1) % 2)
    check += server.collect((steps - 1) % 2)
    print("final", check / steps)


if __name__ == "__main__":
    main()
