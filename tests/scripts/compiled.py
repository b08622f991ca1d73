import sys

import torch
import toy
from torch.utils.data import DataLoader

model = toy.model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
call = model
if sys.argv[1] == "model":
    call = torch.compile(model, backend="eager")
elif sys.argv[1] == "module":
    model(torch.randn(2, 8))  # as a summary of the model does
    model.compile(backend="eager")


def train_step(x, y):
    optimizer.zero_grad()
    loss = toy.loss(call(x), y)
    loss.backward()
    optimizer.step()
    return loss


if sys.argv[1] == "step":
    train_step = torch.compile(train_step, backend="eager")
clock = toy.Clock()
for (x, y), _ in zip(DataLoader(toy.data(), batch_size=16), range(60), strict=False):
    train_step(x, y)
    clock.step()
clock.report()
recompiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
assert recompiled <= 6, recompiled
