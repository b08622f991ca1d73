import torch
import toy
from torch.utils.data import DataLoader

generator, critic = torch.nn.Linear(4, 8), toy.model()
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
clock = toy.Clock()
for (real, _), _ in zip(DataLoader(toy.data(), batch_size=16), range(40), strict=False):
    fake = generator(torch.randn(16, 4))
    of_critic.zero_grad()
    (critic(fake.detach()).mean() - critic(real).mean()).backward()
    of_critic.step()
    of_generator.zero_grad()
    (-critic(fake).mean()).backward()
    of_generator.step()
    clock.step()
clock.report()
