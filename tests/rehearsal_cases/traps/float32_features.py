"""Distances of features that the model keeps as an attribute; the index takes float32 only.

expected: not faster with bf16_autocast
danger: bf16_autocast. `model.features` is bfloat16 then; only what the model returns is cast back.
observed: exit status 1 after the last epoch: expected float32, got torch.bfloat16.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Index:
    """A nearest-neighbour index, as strict as those in C++."""

    def __init__(self):
        self.rows = []

    def add(self, rows):
        if rows.dtype != torch.float32:
            raise TypeError(f"expected float32, got {rows.dtype}")
        self.rows.append(rows)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 128))
        self.head = nn.Linear(128, 8)

    def forward(self, x):
        self.features = self.tower(x)
        return self.head(self.features)


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.randn(2048, 256)
    loader = DataLoader(TensorDataset(x, x[:, :8].argmax(1)), batch_size=64)
    model = Siamese()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(4):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())
    index = Index()
    with torch.no_grad():
        for inputs, _ in loader:
            model(inputs)
            index.add(model.features)
    print(len(torch.cat(index.rows)), "rows in the index")
