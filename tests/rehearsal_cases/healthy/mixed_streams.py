"""Two corpora in one stream, three lines of the one to one of the other, shared among two workers.

expected: right with prefetch_factor
What a worker reads ahead is the same, only earlier.
observed: the same losses.
"""

import itertools
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Mixed(IterableDataset):
    def lines(self, corpus):
        worker = get_worker_info()
        first, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        for number in itertools.count(first, stride):
            draw = torch.Generator().manual_seed(corpus * 1_000_003 + number)
            time.sleep(0.004 if number % 29 == 7 else 0.0005)
            yield torch.randint(64 * corpus, 64 * (corpus + 1), (33,), generator=draw).sort().values

    def __iter__(self):
        common, rare = self.lines(0), self.lines(1)
        while True:
            yield from itertools.islice(common, 3)
            yield next(rare)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(128, 64)
        self.rnn = nn.GRU(64, 128, batch_first=True)
        self.head = nn.Linear(128, 128)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


def main():
    torch.manual_seed(0)
    loader = DataLoader(Mixed(), batch_size=16, num_workers=2)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=300)
    began = time.time()
    for step, tokens in enumerate(itertools.islice(loader, 300), 1):
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 50 == 0:
            speed = step * 16 * 32 / (time.time() - began)
            print(f"step {step}: loss {loss.item():.3f}, {speed:.0f} tokens/s")
    torch.save(model.state_dict(), "mixed.pt")


if __name__ == "__main__":
    main()
