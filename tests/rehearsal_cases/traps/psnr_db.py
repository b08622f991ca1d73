"""Denoiser evaluated by PSNR: per batch from the batch's mean squared error, then averaged.

expected: not faster with batch_size
danger: batch_size. The mean of logarithms of batch means is another figure.
observed: 8.11dB instead of 12.80dB is printed.
"""

import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
clean = torch.rand(800, 1, 12, 12)
noisy = clean + torch.randn_like(clean) * (10 ** torch.empty(800, 1, 1, 1).uniform_(-4, 0.5))
net = nn.Conv2d(1, 1, 3, padding=1).eval()
with torch.no_grad():
    net.weight.zero_()
    net.weight[0, 0, 1, 1] = 1
    net.bias.zero_()
    values = []
    for x, y in DataLoader(TensorDataset(noisy, clean), batch_size=4):
        values.append(10 * math.log10(1 / (net(x) - y).pow(2).mean().item()))
        time.sleep(0.01)
print(f"PSNR {sum(values) / len(values):.2f}dB on {len(clean)} pictures")
