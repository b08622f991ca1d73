import sys

import torch
import toy

assert __package__ == "pkg", __package__
assert sys.argv[1:] == ["--steps", "40"]
model = toy.model()
clock = toy.Clock()
for _ in range(int(sys.argv[2])):
    toy.loss(model(torch.randn(8, 8)), torch.randint(0, 2, (8,))).backward()
    toy.descend(model)
    clock.step()
clock.report()
