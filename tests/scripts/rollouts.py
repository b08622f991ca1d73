import torch
import toy

policy = toy.model()
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
clock = toy.Clock()
for _ in range(40):
    states = []
    with torch.no_grad():
        state = torch.randn(4, 8)
        for _ in range(5):
            states.append(state)
            state = state + policy(state).argmax(1, keepdim=True)
    optimizer.zero_grad()
    policy(torch.cat(states)).mean().backward()
    optimizer.step()
    clock.step()
clock.report()
