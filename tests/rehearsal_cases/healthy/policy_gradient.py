"""REINFORCE with a learned baseline on a small grid; returns go to a JSON file, line by line.

expected: right with fused_optimizer
The kernel makes the same steps, up to rounding.
observed: the same returns, in a time that depends on how busy the cores are.
"""

import json

import numpy as np
import torch
from torch import nn


class Grid:
    """Walk from a random place to the lower right corner of a grid."""

    def __init__(self, side, seed):
        self.side, self.draw = side, np.random.default_rng(seed)

    def reset(self):
        self.place = self.draw.integers(0, self.side, 2)
        return self.seen()

    def seen(self):
        picture = np.zeros((2, self.side), dtype=np.float32)
        picture[0, self.place[0]] = picture[1, self.place[1]] = 1
        return picture.ravel()

    def step(self, action):
        move = ((0, 1), (1, 0), (0, -1), (-1, 0))[action]
        self.place = np.clip(self.place + move, 0, self.side - 1)
        done = bool((self.place == self.side - 1).all())
        return self.seen(), 1.0 if done else -0.02, done


torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(12, 128), nn.Tanh(), nn.Linear(128, 4))
value = nn.Sequential(nn.Linear(12, 128), nn.Tanh(), nn.Linear(128, 1))
optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=3e-3)
grid = Grid(6, seed=0)
with open("returns.jsonl", "w") as log:
    for episode in range(400):
        states, actions, rewards = [], [], []
        state, done = grid.reset(), False
        while not done and len(states) < 40:
            with torch.no_grad():
                logits = policy(torch.from_numpy(state))
            action = torch.distributions.Categorical(logits=logits).sample().item()
            states.append(state)
            actions.append(action)
            state, reward, done = grid.step(action)
            rewards.append(reward)
        returns, following = [], 0.0
        for reward in reversed(rewards):
            following = reward + 0.97 * following
            returns.insert(0, following)
        x, goal = torch.from_numpy(np.stack(states)), torch.tensor(returns)
        guess = value(x).squeeze(1)
        spread = torch.distributions.Categorical(logits=policy(x))
        gain = (goal - guess.detach()) * spread.log_prob(torch.tensor(actions))
        loss = -gain.mean() + 0.5 * (guess - goal).square().mean() - 0.01 * spread.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        log.write(json.dumps({"episode": episode, "return": sum(rewards)}) + "\n")
        if episode % 50 == 49:
            print(f"episode {episode + 1}: {len(rewards)} steps, return {sum(rewards):.2f}")
torch.save(policy.state_dict(), "policy.pt")
