import torch
import toy

model = toy.model()
clock = toy.Clock()
for _ in range(6):
    torch.autograd.backward([toy.loss(model(torch.randn(8, 8)), torch.randint(0, 2, (8,)))])
    toy.descend(model)
    clock.step()
clock.report()
