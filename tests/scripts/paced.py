"""Steps that take as long as they are told, for studies whose figures are known."""

import argparse
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--pause", type=float, default=0.06)
parser.add_argument("--steps", type=int, default=40)
chosen = parser.parse_args()

model = torch.nn.Linear(4, 1)
for _ in range(chosen.steps):
    model(torch.ones(2, 4)).mean().backward()
    time.sleep(chosen.pause)
print("trained", chosen.pause)
