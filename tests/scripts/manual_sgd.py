import torch
import toy

model = toy.model()
clock = toy.Clock()
for _ in range(40):
    loss = toy.loss(model(torch.randn(8, 8)), torch.randint(0, 2, (8,)))
    loss.backward()
    toy.descend(model)
    clock.step()
clock.report()
