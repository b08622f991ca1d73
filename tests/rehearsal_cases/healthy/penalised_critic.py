"""A critic with a gradient penalty in each step, and a generator, on two-dimensional data.

expected: right with fused_optimizer
The kernel makes the same steps; second derivatives are none of its business.
observed: the same losses to all printed digits.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
angle = torch.rand(1600, 1) * 6.28
real = torch.cat([angle.cos(), angle.sin()], 1)
generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))
critic = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
g_step = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
c_step = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
loader = DataLoader(TensorDataset(real), batch_size=32, shuffle=True)
for epoch in range(10):
    total = 0.0
    for number, (batch,) in enumerate(loader):
        fake = generator(torch.randn(len(batch), 8))
        share = torch.rand(len(batch), 1)
        between = (share * batch + (1 - share) * fake.detach()).requires_grad_(True)
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        loss = critic(fake.detach()).mean() - critic(batch).mean() + 10 * penalty
        c_step.zero_grad()
        loss.backward()
        c_step.step()
        total += loss.item()
        if number % 5 == 4:
            g_loss = -critic(generator(torch.randn(len(batch), 8))).mean()
            g_step.zero_grad()
            g_loss.backward()
            g_step.step()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
torch.save(generator.state_dict(), "generator.pt")
