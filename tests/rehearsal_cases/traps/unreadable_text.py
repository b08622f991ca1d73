"""Reviews from the web, a few of which are no UTF-8: the loop counts those and goes on.

expected: not faster with dataloader_workers
danger: dataloader_workers. `UnicodeDecodeError` takes five arguments, and a worker passes on a
text: what arrives is a `RuntimeError`, which the loop does not catch. Six of 1,600 are unreadable.
observed: a `RuntimeError` at the first unreadable review; unchanged it left out six batches.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS = "good bad fine poor great dull bright slow warm cold film book café naïve".split()


class Reviews(Dataset):
    def __init__(self):
        draw = torch.Generator().manual_seed(0)
        bad = set(torch.randperm(1600, generator=draw)[:6].tolist())
        self.rows, self.labels = [], []
        for i in range(1600):
            picks = torch.randint(len(WORDS), (24,), generator=draw).tolist()
            text = " ".join(WORDS[k] for k in picks) + " café"
            self.rows.append(text.encode("latin-1" if i in bad else "utf-8"))
            self.labels.append(float(picks.count(0) > picks.count(1)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        time.sleep(0.001)
        counts = torch.zeros(256)
        for word in self.rows[i].decode("utf-8").split():
            counts[sum(word.encode()) % 256] += 1
        return counts, self.labels[i]


torch.manual_seed(0)
loader = DataLoader(Reviews(), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(4):
    total, steps, unreadable = 0.0, 0, 0
    batches = iter(loader)
    while True:
        try:
            x, y = next(batches)
        except StopIteration:
            break
        except UnicodeDecodeError:
            unreadable += 1
            continue
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        steps += 1
    print(f"epoch {epoch}: {total / steps:.4f}, {unreadable} batches could not be read")
torch.save(model.state_dict(), "reviews.pt")
