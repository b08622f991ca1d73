"""Advantage actor-critic on many copies of a small environment that lives in numpy."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = "TINY" in os.environ
ENVS = 4 if TINY else 64
HORIZON = 4 if TINY else 16
OBS, ACTIONS = 32, 6
HIDDEN = 16 if TINY else 512
device = "cuda" if torch.cuda.is_available() else "cpu"


class VecEnv:
    def __init__(self):
        self.rng = np.random.default_rng(1)
        self.push = self.rng.normal(size=(ACTIONS, OBS)).astype(np.float32) * 0.1
        self.state = self.rng.normal(size=(ENVS, OBS)).astype(np.float32)

    def step(self, actions):
        self.state = 0.95 * self.state + self.push[actions]
        reward = -np.square(self.state).mean(axis=1)
        done = np.abs(self.state).max(axis=1) > 3
        self.state[done] = 0
        return self.state.copy(), reward, done.astype(np.float32)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(OBS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh()
        )
        self.pi = nn.Linear(HIDDEN, ACTIONS)
        self.v = nn.Linear(HIDDEN, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(-1)


def choose(policy, obs):
    with torch.no_grad():
        logits, _ = policy(torch.from_numpy(obs).to(device))
    best = logits.argmax(dim=-1)
    return best.cpu().numpy()


def explore(actions, rng, eps=0.1):
    random = rng.integers(0, ACTIONS, ENVS)
    return np.where(rng.random(ENVS) < eps, random, actions)


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    rng = np.random.default_rng(2)
    env, policy = VecEnv(), Policy().to(device)
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=7e-4)
    obs = env.state.copy()
    for update in range(int(os.environ.get("STEPS", 2000))):
        seen, acted, rewards, dones = [], [], [], []
        for _ in range(HORIZON):
            actions = explore(choose(policy, obs), rng)
            seen.append(obs)
            acted.append(actions)
            obs, reward, done = env.step(actions)
            rewards.append(reward)
            dones.append(done)
        ret, returns = np.zeros(ENVS, np.float32), []
        for r, d in zip(reversed(rewards), reversed(dones)):
            ret = r + 0.99 * ret * (1 - d)
            returns.append(ret.astype(np.float32))
        target = torch.from_numpy(np.concatenate(returns[::-1])).to(device)
        logits, value = policy(torch.from_numpy(np.concatenate(seen)).to(device))
        action = torch.from_numpy(np.concatenate(acted)).to(device)
        advantage = target - value
        nll = F.cross_entropy(logits, action, reduction="none")
        loss = (nll * advantage.detach()).mean() + 0.5 * advantage.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 200 == 0:
            print(update, loss.item())
    print("final", loss.item())


main()
