import torch
import toy

model = toy.model()
clock = toy.Clock()
for _ in range(40):
    loss = toy.loss(model(torch.randn(8, 8)), torch.randint(0, 2, (8,)))
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
    clock.step()
clock.report()
