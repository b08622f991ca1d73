"""Texts padded to the longest of their batch, and a mean over all positions, padding included.

expected: not faster with batch_size
danger: batch_size. A text's vector depends on the longest one of its batch.
observed: mean norm of the vectors 4.97 becomes 5.17.
"""

import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

generator = random.Random(0)
texts = [
    torch.tensor([generator.randrange(1, 500) for _ in range(generator.randint(4, 60))])
    for _ in range(1600)
]


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, 96)
        self.layer = nn.TransformerEncoderLayer(96, 4, 192, batch_first=True)

    def forward(self, tokens):
        return self.layer(self.embed(tokens)).mean(1)


def main():
    torch.manual_seed(0)
    encoder = Encoder().eval()
    loader = DataLoader(texts, batch_size=8, collate_fn=lambda b: pad_sequence(b, batch_first=True))
    vectors = []
    with torch.inference_mode():
        for tokens in loader:
            time.sleep(0.025)  # fetches the texts
            vectors.append(encoder(tokens))
    vectors = torch.cat(vectors)
    torch.save(vectors, "vectors.pt")
    print(vectors.shape, "norm", vectors.norm(dim=1).mean().item())


main()
