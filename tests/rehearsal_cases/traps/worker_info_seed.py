"""Noise by the seed that a worker was given and the sample's number, so that it can be repeated.

expected: not faster with persistent_workers
danger: persistent_workers. Workers that live on keep their seed: a sample has the same one or two
noises in all epochs, and the model learns them by heart.
observed: a loss of 0.0004 in the last epoch instead of 0.98, and a test of 2.21 instead of 2.94.
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Spectra(Dataset):
    def __init__(self):
        draw = np.random.default_rng(0)
        self.x = draw.standard_normal((192, 48)).astype(np.float32)
        self.y = self.x[:, :6].sum(1) + 0.3 * draw.standard_normal(192).astype(np.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        draw = np.random.default_rng([get_worker_info().seed, i])
        return self.x[i] + 0.7 * draw.standard_normal(48).astype(np.float32), self.y[i]


def main():
    torch.manual_seed(0)
    data = Spectra()
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    draw = np.random.default_rng(1)
    test = torch.from_numpy(draw.standard_normal((500, 48)).astype(np.float32))
    for epoch in range(60):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        if epoch % 10 == 9:
            print(f"epoch {epoch}: {total / len(loader):.4f}")
    with torch.no_grad():
        error = nn.functional.mse_loss(model(test).squeeze(1), test[:, :6].sum(1))
    print(f"test {error.item():.4f}")


if __name__ == "__main__":
    main()
