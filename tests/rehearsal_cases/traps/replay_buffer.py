"""A replay buffer that grows between passes; the loader draws from it with replacement.

expected: not faster with persistent_workers
danger: persistent_workers. Workers keep the short buffer, and the sampler draws from the long one.
observed: IndexError in a worker at the second iteration; exit status 1.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


class Replay(Dataset):
    def __init__(self):
        self.transitions = []

    def collect(self, policy, count):
        state = torch.randn(count, 6)
        with torch.no_grad():
            action = policy(state).argmax(1)
        reward = -(state[:, 0] - action).abs()
        self.transitions += list(zip(state, action, reward))

    def __len__(self):
        return len(self.transitions)

    def __getitem__(self, i):
        time.sleep(0.001)  # unpickles the pictures of the episode
        return self.transitions[i]


class FreshSampler(RandomSampler):
    @property
    def num_samples(self):
        return 640


torch.manual_seed(4)
q = nn.Sequential(nn.Linear(6, 128), nn.ReLU(), nn.Linear(128, 3))
optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
buffer = Replay()
buffer.collect(q, 500)
loader = DataLoader(buffer, batch_size=16, sampler=FreshSampler(buffer, replacement=True))
for iteration in range(12):
    for state, action, reward in loader:
        value = q(state).gather(1, action[:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(value, reward)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    buffer.collect(q, 500)
    print(f"iteration {iteration}: buffer {len(buffer)}, loss {loss.item():.4f}")
