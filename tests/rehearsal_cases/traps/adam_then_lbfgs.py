"""Adam for the first phase, L-BFGS for the last digits, as for physics-informed networks.

expected: not faster with channels_last
danger: channels_last. `torch.optim.LBFGS` takes `p.grad.view(-1)`: the second phase fails.
observed: exit status 1 in the first step of L-BFGS, with the same losses until then.
"""

import torch
from torch import nn


class Solver(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(2, 24, 3, padding=1),
            nn.Tanh(),
            nn.Conv2d(24, 24, 3, padding=1),
            nn.Tanh(),
            nn.Conv2d(24, 2, 3, padding=1),
        )

    def forward(self, field):
        return field + self.net(field)


def residual(field):
    laplace = (
        field.roll(1, -1) + field.roll(-1, -1) + field.roll(1, -2) + field.roll(-1, -2) - 4 * field
    )
    return laplace.pow(2).mean()


torch.manual_seed(0)
solver = Solver()
fields = torch.randn(8, 2, 16, 16)
adam = torch.optim.Adam(solver.parameters(), lr=1e-3)
for step in range(500):
    loss = residual(solver(fields))
    adam.zero_grad()
    loss.backward()
    adam.step()
    if step % 100 == 0:
        print("adam", step, loss.item())

lbfgs = torch.optim.LBFGS(solver.parameters(), lr=0.1, max_iter=5)


def closure():
    lbfgs.zero_grad()
    loss = residual(solver(fields))
    loss.backward()
    return loss


for step in range(10):
    loss = lbfgs.step(closure)
print("lbfgs", loss.item())
torch.save(solver.state_dict(), "solver.pt")
