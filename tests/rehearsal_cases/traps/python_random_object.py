"""Negative pairs are drawn by a `random.Random` that a helper of the data set holds.

expected: not faster with dataloader_workers
danger: dataloader_workers. The same negatives come again in each epoch.
observed: both workers draw the same negatives, and 696 of 800 are those of the epoch before (none
unchanged).
"""

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class NegativeSampler:
    def __init__(self, items, seed=13):
        self.items = items
        self.random = random.Random(seed)

    def __call__(self, positive):
        while (choice := self.random.randrange(self.items)) == positive:
            pass
        return choice


class Interactions(Dataset):
    def __init__(self, users=400, items=1000):
        generator = random.Random(0)
        self.pairs = [(user, generator.randrange(items)) for user in range(users) for _ in "ab"]
        self.negative = NegativeSampler(items)

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        user, item = self.pairs[i]
        time.sleep(0.0012)
        return {"user": user, "item": item, "negative": self.negative(item)}


class Factors(nn.Module):
    def __init__(self, users, items, width=64):
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)

    def forward(self, user, item):
        return (self.users(user) * self.items(item)).sum(-1)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Factors(400, 1000)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    loader = DataLoader(Interactions(), batch_size=16, shuffle=True)
    for epoch in range(8):
        losses = 0.0
        for batch in loader:
            good = model(batch["user"], batch["item"])
            bad = model(batch["user"], batch["negative"])
            loss = -nn.functional.logsigmoid(good - bad).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses += loss.item()
        print(f"epoch {epoch + 1}: BPR loss {losses / len(loader):.4f}")
