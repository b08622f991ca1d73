"""Steps that take as long as they are told, whoever else uses the machine: known figures."""

import argparse
import gc
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--pause", type=float, default=0.06)
parser.add_argument("--steps", type=int, default=40)
chosen = parser.parse_args()

gc.disable()  # garbage, of which an import makes none, is a seventh of what this one takes
import torch  # noqa: E402 - a wrong command line is told before it, in no time

model = torch.nn.Linear(4, 1)
# How many there will be cannot be asked of a generator, so nothing is forecast of the whole run: so
# short a one saves less than starts of processes differ by.
for _ in (None for _ in range(chosen.steps)):
    begin_s = time.perf_counter()
    model(torch.ones(2, 4)).mean().backward()
    time.sleep(max(0.0, begin_s + chosen.pause - time.perf_counter()))
print("trained", chosen.pause, flush=True)
os._exit(0)  # taking torch down again takes a fifth of a run's time
