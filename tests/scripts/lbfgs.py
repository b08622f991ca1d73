import torch
import toy

model = toy.model()
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
x, y = torch.randn(32, 8), torch.randint(0, 2, (32,))
clock = toy.Clock()


def closure():
    optimizer.zero_grad()
    loss = toy.loss(model(x), y)
    loss.backward()
    return loss


for _ in range(30):
    optimizer.step(closure)
    clock.step()
clock.report()
