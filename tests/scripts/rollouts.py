import torch
import toy

policy = toy.model()
clock = toy.Clock()
for _ in range(40):
    states = []
    with torch.no_grad():
        state = torch.randn(4, 8)
        for _ in range(5):
            states.append(state)
            state = state + policy(state).argmax(1, keepdim=True)
    policy(torch.cat(states)).mean().backward()
    toy.descend(policy)
    clock.step()
clock.report()
