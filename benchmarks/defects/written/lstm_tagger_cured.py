"""Named entity tagging with a two-layer LSTM."""

import argparse
import os

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=int(os.environ.get("STEPS", "2000")))
parser.add_argument("--hidden", type=int, default=16 if os.environ.get("TINY") else 512)
parser.add_argument("--batch", type=int, default=4 if os.environ.get("TINY") else 128)
parser.add_argument("--length", type=int, default=8 if os.environ.get("TINY") else 100)
parser.add_argument("--vocab", type=int, default=100 if os.environ.get("TINY") else 20000)
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TAGS = 9


class Recurrent(nn.Module):
    """One direction, one layer; (batch, time, features) in and out."""

    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.lstm = nn.LSTM(n_in, n_hidden, batch_first=True)

    def forward(self, x):
        outputs, _ = self.lstm(x)
        return outputs


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(args.vocab, args.hidden, padding_idx=0)
        self.rnn1 = Recurrent(args.hidden, args.hidden)
        self.rnn2 = Recurrent(args.hidden, args.hidden)
        self.classify = nn.Linear(args.hidden, TAGS)

    def forward(self, words):
        x = self.embed(words)
        x = self.rnn1(x)
        x = self.rnn2(x)
        return self.classify(x)


def batches():
    gen = torch.Generator().manual_seed(7)
    words = torch.randint(1, args.vocab, (50, args.batch, args.length), generator=gen).to(device)
    tags = torch.randint(0, TAGS, (50, args.batch, args.length), generator=gen).to(device)
    i = 0
    while True:
        yield words[i % 50], tags[i % 50]
        i += 1


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    tagger = Tagger().to(device)
    optimizer = torch.optim.SGD(tagger.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()
    for step, (words, tags) in zip(range(args.steps), batches()):
        optimizer.zero_grad()
        scores = tagger(words)
        loss = criterion(scores.reshape(-1, TAGS), tags.reshape(-1))
        loss.backward()
        optimizer.step()
        if step % 200 == 199:
            print(f"step {step + 1}: {loss.item():.4f}", flush=True)
    print("final", loss.item())


if __name__ == "__main__":
    main()
