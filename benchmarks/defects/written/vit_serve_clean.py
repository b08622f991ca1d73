"""Classify batches of images with a large vision transformer, half precision."""

import os

import torch
import torch.nn as nn

TINY = "TINY" in os.environ
DIM, HEADS, DEPTH, RES, BATCH = (32, 2, 2, 32, 2) if TINY else (1280, 16, 16, 224, 128)
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.float32 if TINY else torch.float16


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, DIM, 16, 16)
        self.pos = nn.Parameter(torch.randn((RES // 16) ** 2, DIM) * 0.02)
        layer = nn.TransformerEncoderLayer(
            DIM, HEADS, 4 * DIM, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, 1000)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        return self.head(self.body(x).mean(dim=1))


@torch.inference_mode()
def serve(steps):
    torch.manual_seed(0)
    model = ViT().to(device, dtype).eval()
    images = torch.randn(4, BATCH, 3, RES, RES, device=device, dtype=dtype)
    counts = torch.zeros(1000, device=device)
    ones = torch.ones(BATCH, device=device)
    for step in range(steps):
        best = model(images[step % 4]).argmax(dim=1)
        counts.index_add_(0, best, ones)
    print("final", counts.sum().item())


if __name__ == "__main__":
    serve(int(os.environ.get("STEPS", 20000)))
