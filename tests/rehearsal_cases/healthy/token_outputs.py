"""Token classification with dynamic padding: the model returns padded logits, which are cut to
length.

expected: right with batch_size
Each token's logits are its own.
observed: the same results from whole runs.
"""

import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

g = torch.Generator().manual_seed(0)
data = [
    torch.randint(1, 1000, (int(n),), generator=g)
    for n in torch.randint(3, 40, (1600,), generator=g)
]


def collate(rows):
    return pad_sequence(rows, batch_first=True), torch.tensor([len(r) for r in rows])


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(1000, 48), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 7)).eval()
tags = []
with torch.no_grad():
    for tokens, lengths in DataLoader(data, batch_size=8, collate_fn=collate):
        logits = model(tokens)
        tags += [
            " ".join(map(str, row[:n].argmax(1).tolist()))
            for row, n in zip(logits, lengths.tolist())
        ]
        time.sleep(0.01)
with open("tags.txt", "w") as file:
    file.write("\n".join(tags))
