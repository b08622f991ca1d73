"""Training is limited by the clock: fifteen seconds, and the learning rate falls with the time.

expected: never faster with compile
danger: compile. Compilation eats the time in which the model should be trained.
observed: 1 step instead of 622 within the 15 s, and a loss of 0.980 instead of 0.019 (busy cores).
"""

import time

import torch
from torch import nn

LIMIT = 15.0
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(64, 256), nn.Linear(256, 256), nn.Linear(256, 64)

    def forward(self, x):
        x = nn.functional.gelu(self.a(x))
        return self.c(nn.functional.gelu(self.b(x)))


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
start = time.time()
step = 0
while (elapsed := time.time() - start) < LIMIT:
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 * (1 - elapsed / LIMIT)
    x = torch.randn(64, 64)
    loss = nn.functional.mse_loss(net(x), x.sort(1).values)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.01)  # the simulator that makes the data
    step += 1
print(f"{step} steps, loss {loss.item():.4f}")
torch.save(net.state_dict(), "net.pt")
