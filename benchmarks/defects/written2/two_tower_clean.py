"""Two-tower retrieval on content features with an in-batch softmax; all data on the GPU."""

import os

import torch
from torch import nn
from torch.nn import functional as F

TINY = bool(os.environ.get("TINY"))
FEATURES, HIDDEN, OUT, BATCH = (16, 32, 8, 8) if TINY else (1024, 4096, 256, 8192)
ROWS = 64 if TINY else 200_000
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def tower() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN),
        nn.GELU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.GELU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.GELU(),
        nn.Linear(HIDDEN, OUT),
    )


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.item = tower(), tower()

    def forward(self, queries, items):
        q = F.normalize(self.query(queries).float(), dim=1).to(torch.bfloat16)
        i = F.normalize(self.item(items).float(), dim=1).to(torch.bfloat16)
        scores = (q @ i.T).float() * 20
        return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


def main() -> None:
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    queries = torch.randn(ROWS, FEATURES, device=device, dtype=torch.bfloat16)
    items = torch.randn(ROWS, FEATURES, device=device, dtype=torch.bfloat16)
    model = TwoTower().to(device, torch.bfloat16)
    forward = model if TINY else torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    for step in range(int(os.environ.get("STEPS", 250))):
        rows = torch.randint(ROWS, (BATCH,), device=device)
        loss = forward(queries[rows], items[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    print("final", loss.item())


if __name__ == "__main__":
    main()
