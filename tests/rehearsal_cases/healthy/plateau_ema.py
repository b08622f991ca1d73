"""EMA of the weights, learning rate by plateau, early stopping, accumulation over four batches.

expected: right with dataloader_workers
observed: the same results from whole runs.
"""

import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __init__(self, seed, n):
        self.x = torch.randn(n, 24, generator=torch.Generator().manual_seed(seed))
        self.y = (self.x[:, :4].sum(1) > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.0005)
        return self.x[i], self.y[i]


def main():
    torch.manual_seed(0)
    train, valid = (
        DataLoader(Points(1, 640), batch_size=8, shuffle=True),
        DataLoader(Points(2, 160), batch_size=16),
    )
    model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 2))
    ema = copy.deepcopy(model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    best, waited = 1e9, 0
    for epoch in range(12):
        model.train()
        for n, (x, y) in enumerate(train, 1):
            (nn.functional.cross_entropy(model(x), y) / 4).backward()
            if n % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
                with torch.no_grad():
                    for e, p in zip(ema.parameters(), model.parameters()):
                        e.lerp_(p, 0.05)
        with torch.no_grad():
            loss = (
                sum(
                    nn.functional.cross_entropy(ema(x), y, reduction="sum").item() for x, y in valid
                )
                / 160
            )
        plateau.step(loss)
        print(f"epoch {epoch}: {loss:.4f} lr {optimizer.param_groups[0]['lr']:g}")
        best, waited = (loss, 0) if loss < best else (best, waited + 1)
        if waited == 0:
            torch.save(ema.state_dict(), "best.pt")
        if waited > 2:
            break


if __name__ == "__main__":
    main()
