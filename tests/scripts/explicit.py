import torch
import toy

import gpuadvisor

model = toy.model()
clock = toy.Clock()
for _ in range(30):
    for _ in range(3):
        toy.loss(model(torch.randn(8, 8)), torch.randint(0, 2, (8,))).backward()
        toy.descend(model)
    clock.step()
    gpuadvisor.step()
clock.report()
