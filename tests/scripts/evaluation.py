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


evaluate(12)  # before anything is trained
clock = toy.Clock()
for number, (x, y) in enumerate(DataLoader(toy.data(960), batch_size=16), 1):
    toy.loss(model(x), y).backward()
    toy.descend(model)
    clock.step()
    if number % 10 == 0:
        evaluate(20)
clock.report()
