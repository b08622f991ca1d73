"""Learner of a DQN on frames; the actors' transitions are in the replay memory already."""

import os
import random

import numpy as np
import torch
from torch import nn

TINY = bool(os.environ.get("TINY"))
CAPACITY = 200 if TINY else 8000
BATCH = 8 if TINY else 256
ACTIONS = 6
GAMMA = 0.99
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ReplayMemory:
    def __init__(self, frames, actions, rewards, dones):
        columns = (frames[:-1], actions, rewards, frames[1:], dones)
        self.columns = [torch.from_numpy(column).to(device) for column in columns]
        self.rows = range(len(actions))

    def sample(self, n):
        rows = torch.tensor(random.sample(self.rows, n)).to(device)
        s, a, r, s2, d = (column[rows] for column in self.columns)
        return s, a, r, s2, d


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(),
        )  # fmt: skip
        self.value = nn.Sequential(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 1))
        self.advantage = nn.Sequential(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, ACTIONS))

    def forward(self, frames):
        x = self.body(frames.float() / 255)
        a = self.advantage(x)
        return self.value(x) + a - a.mean(1, keepdim=True)


def play(n):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (n + 1, 4, 84, 84), dtype=np.uint8)
    actions = rng.integers(0, ACTIONS, n)
    rewards = rng.standard_normal(n).astype(np.float32)
    dones = (rng.random(n) < 0.01).astype(np.float32)
    return frames, actions, rewards, dones


def learn(steps):
    random.seed(1)
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    memory = ReplayMemory(*play(CAPACITY))
    online, target = QNetwork().to(device), QNetwork().to(device)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=6.25e-5, eps=1.5e-4)
    for step in range(steps):
        s, a, r, s2, d = memory.sample(BATCH)
        with torch.no_grad():
            best = online(s2).argmax(1, keepdim=True)
            goal = r + GAMMA * (1 - d) * target(s2).gather(1, best).squeeze(1)
        q = online(s).gather(1, a[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(q, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            target.load_state_dict(online.state_dict())
            print(step, loss.item())
    print("final", loss.item())


if __name__ == "__main__":
    learn(int(os.environ.get("STEPS", 1200)))
