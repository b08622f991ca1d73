"""A GAN whose critic gets its gradient penalty in one of 32 steps only, as in StyleGAN2.

expected: not faster with compile
danger: compile. What AOTAutograd compiled cannot be differentiated twice: the 33rd step fails.
observed: status 1: RuntimeError, "this backward function was compiled with non-empty donated
buffers which requires create_graph=False", at the first penalty.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
angle = torch.rand(1600) * 6.28
real = torch.stack([angle.cos(), angle.sin()], 1)
loader = DataLoader(TensorDataset(real), batch_size=16, shuffle=True, drop_last=True)
generator = nn.Sequential(
    nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
)
critic = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.99))
optimizer_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.99))
step = 0
for epoch in range(8):
    for (batch,) in loader:
        fake = generator(torch.randn(len(batch), 8)).detach()
        loss_c = nn.functional.softplus(critic(fake)).mean()
        loss_c = loss_c + nn.functional.softplus(-critic(batch)).mean()
        optimizer_c.zero_grad()
        loss_c.backward()
        optimizer_c.step()
        step += 1
        if step % 32 == 0:
            batch = batch.clone().requires_grad_()
            (slope,) = torch.autograd.grad(critic(batch).sum(), batch, create_graph=True)
            penalty = 32 * 0.5 * slope.square().sum(1).mean()
            optimizer_c.zero_grad()
            penalty.backward()
            optimizer_c.step()
        loss_g = nn.functional.softplus(-critic(generator(torch.randn(len(batch), 8)))).mean()
        optimizer_g.zero_grad()
        loss_g.backward()
        optimizer_g.step()
    print(f"epoch {epoch}: generator {loss_g.item():.4f}, critic {loss_c.item():.4f}")
