"""Samples that take long to make, loaded by the script itself, cured by eight workers."""

import torch
from torch.utils.data import DataLoader, Dataset

WANT = {"input_bound"}
DEVICE, WIDTH = ("cuda", 2048) if torch.cuda.is_available() else ("cpu", 64)


class Slow(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, number):
        generator = torch.Generator().manual_seed(number)
        return torch.randn(WIDTH, generator=generator).sort().values.cumsum(0)


def steps(cured):
    workers = {"num_workers": 8, "persistent_workers": True} if cured else {}
    loader = DataLoader(Slow(), batch_size=64, **workers)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(8))).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for batch in loader:
        optimizer.zero_grad()
        model(batch.to(DEVICE)).mean().backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    for _ in steps(cured=False):
        pass
