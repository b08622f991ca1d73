"""Orders."""

import time

import torch
from torch.utils.data import Dataset


class Orders(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        time.sleep(0.002)
        generator = torch.Generator().manual_seed(i)
        basket = torch.randint(0, 500, (10,), generator=generator)
        return {"basket": basket, "hour": torch.tensor([i % 24 / 24.0]), "paid": basket[0] / 100}
