import torch
import toy

model = toy.model()
clock = toy.Clock()
for _ in range(6):
    model.zero_grad()
    torch.autograd.backward([toy.loss(model(torch.randn(8, 8)), torch.randint(0, 2, (8,)))])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
    clock.step()
clock.report()
