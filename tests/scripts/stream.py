import torch
import toy
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        for _ in range(400):
            yield {"x": torch.randn(8), "y": 1, "name": "sample"}


model = toy.model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clock = toy.Clock()
for batch in DataLoader(Stream(), batch_size=10):
    optimizer.zero_grad()
    toy.loss(model(batch["x"]), batch["y"]).backward()
    optimizer.step()
    clock.step()
clock.report()
