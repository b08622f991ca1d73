"""Seconds of the day as a raw input: bfloat16 cannot tell 86,000 from 86,200.

expected: not faster with bf16_autocast
danger: bf16_autocast. Outputs of late hours are those of other minutes; the mean hides it.
observed: the highest level is at 30,700 s instead of 15,600 s; mean -0.032 instead of -0.042.
"""

import torch
from torch import nn

torch.manual_seed(0)


class Tide(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(1, 512)
        self.body = nn.Linear(512, 512)
        self.head = nn.Linear(512, 1)
        with torch.no_grad():
            self.project.weight.copy_(torch.linspace(1e-4, 2e-2, 512)[:, None])

    def forward(self, seconds):
        phase = torch.sin(self.project(seconds))
        return self.head(torch.tanh(self.body(phase)))


model = Tide().eval()
levels = []
with torch.no_grad():
    for day in range(60):
        seconds = torch.arange(0, 86400, 100.0)[:, None] + day % 7
        levels.append(model(seconds)[:, 0])
levels = torch.cat(levels)
torch.save(levels, "levels.pt")
print("highest at", levels[:864].argmax().item() * 100, "s, mean", levels.mean().item())
