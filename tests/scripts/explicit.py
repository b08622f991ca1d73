import torch
import toy

import gpuadvisor

model = toy.model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clock = toy.Clock()
for _ in range(30):
    for _ in range(3):
        optimizer.zero_grad()
        toy.loss(model(torch.randn(8, 8)), torch.randint(0, 2, (8,))).backward()
        optimizer.step()
    clock.step()
    gpuadvisor.step()
clock.report()
