"""Text is tokenised on the fly with regular expressions and padded in the collate function.

expected: faster with dataloader_workers
observed: all passes over the data in 17.0 s instead of 19.8 s (1.17x), on two busy cores; exit
status 0.
"""

import random
import re
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

WORD = re.compile(r"\w+|[^\w\s]")
generator = random.Random(0)
vocabulary = ["".join(generator.choices("abcdefgh", k=5)) for _ in range(400)]
lines = [" ".join(generator.choices(vocabulary, k=generator.randint(20, 60))) for _ in range(640)]
index = {word: number for number, word in enumerate(vocabulary, 1)}


class Text(Dataset):
    def __len__(self):
        return len(lines)

    def __getitem__(self, i):
        time.sleep(0.0015)  # the line is fetched
        words = WORD.findall(lines[i].lower())
        return torch.tensor([index.get(word, 0) for word in words]), len(words) % 2


def pad(samples):
    tokens, labels = zip(*samples)
    return pad_sequence(tokens, batch_first=True), torch.tensor(labels)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(vocabulary) + 1, 64, padding_idx=0)
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, tokens):
        mask = (tokens > 0).unsqueeze(-1)
        return self.head((self.embed(tokens) * mask).sum(1) / mask.sum(1))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Text(), batch_size=16, shuffle=True, collate_fn=pad)
    for epoch in range(10):
        total = 0.0
        for tokens, labels in loader:
            loss = nn.functional.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")
