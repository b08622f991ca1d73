"""Click prediction in the manner of DLRM: embedding bags, pairwise products, two MLPs."""

import os

import torch
import torch.nn as nn

SMALL = os.environ.get("TINY") is not None
ROWS = 50 if SMALL else 400_000
TABLES = 3 if SMALL else 26
DIM = 8 if SMALL else 64
BATCH = 8 if SMALL else 8192
BAG = 4
DENSE = 13
dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, DIM, mode="sum") for _ in range(TABLES))
        self.bottom = mlp(DENSE, 4 * DIM, 2 * DIM, DIM)
        pairs = TABLES * (TABLES + 1) // 2
        self.top = mlp(pairs + DIM, 512, 256, 1)
        i, j = torch.tril_indices(TABLES + 1, TABLES + 1, offset=-1)
        self.register_buffer("flat", i * (TABLES + 1) + j)

    def forward(self, dense, ids):
        d = self.bottom(dense)
        feats = [d] + [table(ids[t]) for t, table in enumerate(self.tables)]
        stack = torch.stack(feats, dim=1)
        products = torch.bmm(stack, stack.transpose(1, 2)).flatten(1)
        products = products.index_select(1, self.flat)
        return self.top(torch.cat([d, products], dim=1)).squeeze(1)


class Clicks:
    """Zipf-like ids; made once, on the device."""

    def __init__(self, n):
        gen = torch.Generator(device=dev).manual_seed(5)
        u = torch.rand(n, TABLES, BATCH, BAG, device=dev, generator=gen)
        self.ids = (u.pow(3) * ROWS).long().clamp_(max=ROWS - 1)
        self.dense = torch.randn(n, BATCH, DENSE, device=dev, generator=gen)
        self.label = (torch.rand(n, BATCH, device=dev, generator=gen) < 0.2).float()

    def __getitem__(self, i):
        i %= len(self.label)
        return self.dense[i], self.ids[i], self.label[i]


def run(steps):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Ranker().to(dev)
    data = Clicks(16)
    optim = torch.optim.SGD(model.parameters(), lr=0.05)
    bce = nn.BCEWithLogitsLoss()
    for i in range(steps):
        dense, ids, label = data[i]
        loss = bce(model(dense, ids), label)
        optim.zero_grad()
        loss.backward()
        optim.step()
        if (i + 1) % 500 == 0:
            print(f"{i + 1:6d} {loss.item():.4f}")
    print("final", loss.item())


if __name__ == "__main__":
    run(int(os.environ.get("STEPS", 2000)))
