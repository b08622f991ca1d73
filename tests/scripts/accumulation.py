import torch
import toy
from torch.utils.data import DataLoader

model = toy.model()
optimizer = torch.optim.AdamW(model.parameters())
clock = toy.Clock()
for number, (x, y) in enumerate(DataLoader(toy.data(480), batch_size=4), 1):
    (toy.loss(model(x), y) / 4).backward()
    if number % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
        clock.step()
clock.report()
