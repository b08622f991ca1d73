"""Long documents, which are few, are cut into words by a pool of processes.

expected: not faster with dataloader_workers
danger: dataloader_workers. A worker is a daemon and may have no children: the first long document
ends the script.
observed: exit status 1 at document 1111: daemonic processes are not allowed to have
children.
"""

import time
from multiprocessing import get_context

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def words(text):
    return [hash_of(word) for word in text.split()]


def hash_of(word):
    return sum(ord(letter) * 31**k for k, letter in enumerate(word)) % 2000


class Documents(Dataset):
    def __len__(self):
        return 1200

    def __getitem__(self, i):
        time.sleep(0.001)
        text = " ".join(f"w{(i * 7 + k * k) % 997}" for k in range(20 + 4000 * (i == 1111)))
        if len(text) > 10_000:
            parts = [text[k : k + 5000] for k in range(0, len(text), 5000)]
            with get_context("fork").Pool(2) as pool:
                ids = [each for part in pool.map(words, parts) for each in part]
        else:
            ids = words(text)
        return torch.tensor(ids[:20]), float(i % 2)


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(Documents(), batch_size=16)
    model = nn.Sequential(nn.EmbeddingBag(2000, 32), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(6):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")
    torch.save(model.state_dict(), "model.pt")
