"""Embed images with a convolutional net and look up their nearest neighbours."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = bool(os.environ.get("TINY"))
DIM, W, RES = (16, 8, 32) if TINY else (512, 64, 128)
QUERIES, INDEX, K = (4, 100, 5) if TINY else (128, 200_000, 20)
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.float32 if TINY else torch.float16


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        stages = []
        cin = 3
        for cout in (W, 2 * W, 4 * W, 8 * W):
            stages += [
                nn.Conv2d(cin, cout, 3, 2, 1),
                nn.ReLU(inplace=True),
                nn.Conv2d(cout, cout, 3, 1, 1),
                nn.ReLU(inplace=True),
            ]
            cin = cout
        self.features = nn.Sequential(*stages)
        self.project = nn.Linear(cin, DIM)

    def forward(self, x):
        x = self.features(x).mean(dim=(2, 3))
        return F.normalize(self.project(x), dim=1)


class Index:
    def __init__(self, vectors):
        self.vectors = vectors

    def search(self, queries):
        scores, ids = [], []
        for q in queries:
            similarity = (self.vectors * q).sum(dim=1)
            best = similarity.topk(K)
            scores.append(best.values)
            ids.append(best.indices)
        return torch.stack(scores), torch.stack(ids)


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model = Embedder().to(device, dtype).to(memory_format=torch.channels_last).eval()
    index = Index(F.normalize(torch.randn(INDEX, DIM, device=device), dim=1).to(dtype))
    photos = torch.randn(8, QUERIES, 3, RES, RES, device=device, dtype=dtype)
    seen = torch.zeros((), device=device)
    steps = int(os.environ.get("STEPS", 20000))
    for step in range(steps):
        x = photos[step % 8].contiguous(memory_format=torch.channels_last)
        scores, ids = index.search(model(x))
        seen += scores.float().mean()
        if step % 500 == 0:
            print(step, ids[0, :3].tolist())
    print("final", seen.item() / steps)


if __name__ == "__main__":
    main()
