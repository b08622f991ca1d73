"""A cell that is called for each part of a sequence, with its state after the part before."""

import torch
import toy
from torch import nn


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(16, 8), nn.Linear(16, 2)

    def forward(self, part, state):
        both = torch.cat((part, state), 1)
        return self.out(both), self.hidden(both)


model = Cell()
clock = toy.Clock()
for number in range(40):
    state = torch.zeros(4, 8)
    for part in torch.randn(2 + number % 3, 4, 8):
        out, state = model(part, state)
    toy.loss(out, torch.randint(0, 2, (4,))).backward()
    toy.descend(model)
    clock.step()
clock.report()
