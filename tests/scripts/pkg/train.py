import sys

import torch
import toy

assert __package__ == "pkg", __package__
assert sys.argv[1:] == ["--steps", "40"]
model = toy.model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clock = toy.Clock()
for _ in range(int(sys.argv[2])):
    optimizer.zero_grad()
    toy.loss(model(torch.randn(8, 8)), torch.randint(0, 2, (8,))).backward()
    optimizer.step()
    clock.step()
clock.report()
