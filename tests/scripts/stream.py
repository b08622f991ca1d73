import torch
import toy
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        for _ in range(400):
            yield {"x": torch.randn(8), "y": 1, "name": "sample"}


model = toy.model()
clock = toy.Clock()
for batch in DataLoader(Stream(), batch_size=10):
    toy.loss(model(batch["x"]), batch["y"]).backward()
    toy.descend(model)
    clock.step()
clock.report()
