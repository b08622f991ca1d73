"""Sentiment of film reviews: strings, a vocabulary of our own, a small transformer."""

import os
import random
import re
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

TINY = os.environ.get("TINY")
STEPS = int(os.environ.get("STEPS", 2000))
BATCH, DIM, LAYERS, LENGTH = (4, 32, 1, 16) if TINY else (128, 512, 4, 256)
BUCKETS = 1000 if TINY else 30000
device = "cuda" if torch.cuda.is_available() else "cpu"
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[^\sa-z0-9]", re.IGNORECASE)
SUFFIXES = ("ings", "ing", "edly", "ed", "ly", "ness", "es", "s")


def write_reviews(n):
    rnd = random.Random(0)
    syllables = "ka lo mi ter ning ed ly gra fil mo pre un sto ry act or ness".split()
    words = ["".join(rnd.choices(syllables, k=rnd.randint(1, 4))) for _ in range(5000)]
    out = []
    for _ in range(n):
        body = rnd.choices(words, k=rnd.randint(LENGTH // 2, LENGTH))
        out.append(
            (
                "<br />".join([" ".join(body[:40]).capitalize(), " ".join(body[40:])]),
                rnd.randint(0, 1),
            )
        )
    return out


def tokenize(text):
    text = re.sub(r"<[^>]+>", " ", text.lower())
    ids = []
    for word in WORD.findall(text):
        pieces = [word]
        for suffix in SUFFIXES:
            if len(word) > len(suffix) + 2 and word.endswith(suffix):
                pieces = [word[: -len(suffix)], "##" + suffix]
                break
        ids.extend(zlib.crc32(p.encode()) % (BUCKETS - 2) + 2 for p in pieces)
    ids = [1, *ids[: LENGTH - 1]]
    return torch.tensor(ids + [0] * (LENGTH - len(ids)))


class Reviews(Dataset):
    def __init__(self, reviews):
        self.reviews = reviews

    def __len__(self):
        return len(self.reviews)

    def __getitem__(self, i):
        text, label = self.reviews[i]
        return tokenize(text), label


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(BUCKETS, DIM)
        self.pos = nn.Parameter(torch.randn(LENGTH, DIM) * 0.02)
        layer = nn.TransformerEncoderLayer(
            DIM, DIM // 16, 4 * DIM, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, 2)

    def forward(self, ids):
        return self.head(self.encoder(self.embed(ids) + self.pos)[:, 0])


def main():
    torch.manual_seed(0)
    reviews = Reviews(write_reviews(4 * BATCH if TINY else 64 * BATCH))
    loader = DataLoader(reviews, BATCH, shuffle=True, drop_last=True, pin_memory=device == "cuda")
    model = Classifier().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    step, total = 0, torch.zeros((), device=device)
    while step < STEPS:
        for ids, label in loader:
            ids = ids.to(device, non_blocking=True)
            label = label.to(device, non_blocking=True)
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(ids), label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.detach()
            step += 1
            if step == STEPS:
                break
    print("final", total.item() / STEPS)


if __name__ == "__main__":
    main()
