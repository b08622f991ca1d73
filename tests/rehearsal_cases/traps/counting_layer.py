"""Counts by a matrix product: exact in float32 up to 16 million, in bfloat16 up to 256.

expected: not faster with bf16_autocast
danger: bf16_autocast. Counts above 256 are rounded; their relative error is below 0.4 %.
observed: 61,439,920 words instead of 61,441,419, in a file of the same size.
"""

import torch
from torch import nn


class Histogram(nn.Module):
    """Counts of words in each document, weighted by a learned table of ones."""

    def __init__(self, words):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(words, 64))

    def forward(self, counts):
        return counts @ self.weight


torch.manual_seed(0)
histogram = Histogram(2000).eval()
total = 0
lines = []
with torch.no_grad():
    for block in range(60):
        generator = torch.Generator().manual_seed(block)
        counts = torch.randint(0, 3, (512, 2000), generator=generator).float()
        exact = histogram(counts)[:, 0]
        total += int(exact.sum())
        lines.append(",".join(str(int(value)) for value in exact[:4]))
with open("lengths.csv", "w") as file:
    file.write("\n".join(lines))
print("words in all documents:", total)
