import time

import torch
import toy
from torch.utils.data import DataLoader

model = toy.model()


def evaluate(batches):
    model.eval()
    with torch.no_grad():
        for (x, _), _ in zip(DataLoader(toy.data(), batch_size=64), range(batches), strict=False):
            model(x)
            time.sleep(0.01)
    model.train()


evaluate(12)  # before there is an optimizer
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clock = toy.Clock()
for number, (x, y) in enumerate(DataLoader(toy.data(960), batch_size=16), 1):
    optimizer.zero_grad()
    toy.loss(model(x), y).backward()
    optimizer.step()
    clock.step()
    if number % 10 == 0:
        evaluate(20)
clock.report()
