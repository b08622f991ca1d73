"""Words are hashed into a table with Python's own `hash`, in a script that starts by `spawn`.

expected: not faster with dataloader_workers
danger: dataloader_workers. Each new interpreter has a salt of its own for `hash`: a word has
another place in each worker of each epoch, and in the script's own process, which evaluates.
observed: 0.590 of what was held out is right instead of 0.955.
"""

import multiprocessing
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS = [
    f"{first}{second}" for first in "bdfgklmnprst" for second in ("al", "en", "ir", "os", "um")
]


class Reviews(Dataset):
    def __init__(self, n, seed):
        generator = torch.Generator().manual_seed(seed)
        self.words = torch.randint(len(WORDS), (n, 12), generator=generator)
        self.labels = ((self.words < 20).sum(1) > 4).long()

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        time.sleep(0.006)  # the text comes from far away
        text = [WORDS[word] for word in self.words[i].tolist()]
        return torch.tensor([hash(word) % 4096 for word in text]), self.labels[i]


def main():
    multiprocessing.set_start_method("spawn")
    torch.manual_seed(0)
    loader = DataLoader(Reviews(1280, 1), batch_size=16, shuffle=True)
    held_out = Reviews(200, 2)
    model = nn.Sequential(nn.EmbeddingBag(4096, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        for tokens, labels in loader:
            loss = nn.functional.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            tokens, labels = map(torch.stack, zip(*(held_out[i] for i in range(200))))
            right = (model(tokens).argmax(1) == labels).float().mean().item()
        print(f"epoch {epoch}: {loss.item():.4f}, {right:.3f} of what was held out is right")


if __name__ == "__main__":
    main()
