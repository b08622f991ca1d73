"""Mosaic augmentation is closed for the last epochs, as YOLOX does it (here for the last 4 of 8).

expected: not faster with persistent_workers
danger: persistent_workers. Workers that live on go on with mosaics to the end.
observed: the loss of epoch 4 is 0.33 instead of 0.54: mosaics are never closed.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, n=480):
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(n, 3, 16, 16, generator=g)
        self.y = (self.x.mean((1, 2, 3)) > 0).long()
        self.mosaic = True

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        if self.mosaic:
            x = torch.cat([x[:, :, :8], self.x[(i * 7 + 1) % len(self)][:, :, 8:]], 2)
        return x, self.y[i]


if __name__ == "__main__":
    torch.manual_seed(0)
    data, epochs = Pictures(), 8
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(epochs):
        if epoch == epochs - 4:
            print("--> no mosaic from here on")
            data.mosaic = False
        total = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    torch.save(model.state_dict(), "last.pt")
