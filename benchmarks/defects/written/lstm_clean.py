"""Word-level language model: cuDNN LSTM, half precision."""

import os

import torch
import torch.nn as nn

TINY = bool(os.environ.get("TINY"))
H, VOCAB, BATCH, LENGTH = (16, 50, 2, 8) if TINY else (2048, 10000, 256, 64)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, H)
        self.rnn = nn.LSTM(H, H, num_layers=2)
        self.head = nn.Linear(H, VOCAB)

    def forward(self, words):
        out, _ = self.rnn(self.embed(words))
        return self.head(out)


def batches(n):
    words = torch.randint(VOCAB, (16, LENGTH + 1, BATCH), device=device)
    for i in range(n):
        yield words[i % 16, :-1], words[i % 16, 1:]


def main():
    torch.manual_seed(0)
    net = Net().to(device, torch.bfloat16)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=device == "cuda")
    for i, (x, y) in enumerate(batches(int(os.environ.get("STEPS", 2000)))):
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(net(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        if i % 250 == 0:
            print(i, loss.item())
    print("final", loss.item())


if __name__ == "__main__":
    main()
