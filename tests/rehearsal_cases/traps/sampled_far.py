"""A small language model prints how a document might go on from its 4,096th letter.

expected: not faster with bf16_autocast
danger: bf16_autocast. Angles of positions are a matrix product: in bfloat16 those of neighbours
fall together so far out, which no step of training has.
observed: losses agree to 0.1 %, and all texts are others from the first letters on.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TEXT = "she sells sea shells by the sea shore, and the shells she sells are sea shells. " * 400
LETTERS = sorted(set(TEXT))
FAR = 4096


class Windows(Dataset):
    def __init__(self, letters, length):
        self.numbers = torch.tensor([letters.index(letter) for letter in TEXT])
        self.length = length

    def __len__(self):
        return len(self.numbers) - self.length - 1

    def __getitem__(self, i):
        return self.numbers[i : i + self.length + 1]


class Model(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.embedding = nn.Embedding(letters, 64)
        self.register_buffer("speeds", torch.logspace(0, -2, 32)[None])
        self.recurrent = nn.GRU(64, 192, batch_first=True)
        self.head = nn.Linear(192, letters)

    def forward(self, numbers, state=None, start=0):
        positions = torch.arange(start, start + numbers.shape[1], dtype=torch.float32)
        angles = positions[:, None] @ self.speeds
        places = torch.cat([angles.sin(), angles.cos()], 1)
        found, state = self.recurrent(self.embedding(numbers) + places, state)
        return self.head(found), state

    @torch.no_grad()
    def sample(self, numbers, count):
        logits, state = self(numbers, start=FAR)
        for _ in range(count):
            chances = torch.softmax(logits[:, -1].float() / 0.9, -1)
            numbers = torch.cat([numbers, torch.multinomial(chances, 1)], 1)
            logits, state = self(numbers[:, -1:], state, FAR + numbers.shape[1] - 1)
        return numbers


def endless(loader):
    while True:
        yield from loader


torch.manual_seed(0)
batches = endless(DataLoader(Windows(LETTERS, 64), batch_size=32, shuffle=True))
held_out = next(endless(DataLoader(Windows(LETTERS, 64), batch_size=64, shuffle=True)))
model = Model(len(LETTERS))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for i in range(241):
    model.train()
    batch = next(batches)
    logits, _ = model(batch[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i % 40 == 0:
        model.eval()
        with torch.no_grad():
            logits, _ = model(held_out[:, :-1])
            held = nn.functional.cross_entropy(logits.flatten(0, 1), held_out[:, 1:].flatten())
        print(f"step {i}: loss {loss.item():.2f}, held out {held.item():.2f}")
        text = model.sample(held_out[:1, :8], 160)
        print("sampled:", "".join(LETTERS[number] for number in text[0].tolist()))
