"""The best of 200 near duplicates by a score that the model returns; only the rank is written.

expected: not faster with bf16_autocast
danger: bf16_autocast. Scores agree within 1 %, and most winners are others: bfloat16 has 8 bits.
observed: winners 15, 173, 14, 46 become 0, 0, 0, 0: all scores of a query are equal in bfloat16.
"""

import torch
from torch import nn

torch.manual_seed(0)


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024))
        self.head = nn.Linear(1024, 1)

    def forward(self, x):
        return 5 + self.head(torch.relu(self.body(x))).squeeze(-1)


scorer = Scorer().eval()
winners = []
with torch.inference_mode():
    for query in range(150):
        generator = torch.Generator().manual_seed(query)
        document = torch.randn(256, generator=generator)
        copies = document + 0.01 * torch.randn(200, 256, generator=generator)
        winners.append(scorer(copies).argmax().item())
with open("winners.txt", "w") as file:
    file.writelines(f"{winner}\n" for winner in winners)
print("winners", winners[:10], "checksum", sum(winners))
