import torch
import toy

model = toy.model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
clock = toy.Clock()
for number in range(40):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = toy.loss(model(torch.randn(8, 8)).float(), torch.randint(0, 2, (8,)))
    scaler.scale(loss).backward()
    if number % 3 == 0:  # an overflow, for which the scaler leaves the optimizer's step out
        model[0].weight.grad.fill_(float("inf"))
    scaler.step(optimizer)
    scaler.update()
    clock.step()
clock.report()
