"""Batches of texts are put together by hand, and their tokens are counted where that is done.

expected: not faster with dataloader_workers
danger: dataloader_workers. Batches are put together ahead, so that the state counts the tokens of
four batches that nothing was learned from: budgets and scaling laws are drawn over that number.
observed: `"tokens": 131162` beside step 350 instead of 130000; the same losses.
"""

import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

lengths = torch.randint(8, 40, (960,), generator=torch.Generator().manual_seed(1)).tolist()


class Texts(Dataset):
    def __len__(self):
        return len(lengths)

    def __getitem__(self, i):
        time.sleep(0.001)
        draw = torch.Generator().manual_seed(i)
        return torch.randint(0, 500, (lengths[i],), generator=draw), i % 4


class Usage:
    tokens = 0


class Groups:
    """Sixteen texts of the same length, nearly; another order in each epoch."""

    def __init__(self, usage):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.groups = [order[at : at + 16] for at in range(0, len(order), 16)]
        self.usage, self.epoch = usage, 0

    def __len__(self):
        return len(self.groups)

    def __iter__(self):
        draw = torch.Generator().manual_seed(self.epoch)
        self.epoch += 1
        for number in torch.randperm(len(self.groups), generator=draw).tolist():
            self.usage.tokens += sum(lengths[i] for i in self.groups[number])
            yield self.groups[number]


def padded(samples):
    texts, labels = zip(*samples)
    return nn.utils.rnn.pad_sequence(texts, batch_first=True), torch.tensor(labels)


torch.manual_seed(0)
usage = Usage()
loader = DataLoader(Texts(), batch_sampler=Groups(usage), collate_fn=padded)
embedding, head = nn.Embedding(500, 64), nn.Linear(64, 4)
model = nn.ModuleList([embedding, head])
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
step = 0
for epoch in range(6):
    for texts, labels in loader:
        loss = nn.functional.cross_entropy(head(embedding(texts).mean(1)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 50 == 0:
            with open("state.json", "w") as file:
                json.dump({"step": step, "tokens": usage.tokens, "loss": loss.item()}, file)
    print(f"epoch {epoch}: {loss.item():.4f}")
with open("state.json") as file:
    print(file.read())
