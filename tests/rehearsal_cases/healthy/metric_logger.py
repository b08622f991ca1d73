"""Training in the style of torchvision's references: a logger with eta and times, random flips.

expected: faster with dataloader_workers
observed: the same losses but for other flips.
"""

import datetime
import time
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, n, train):
        self.n, self.train = n, train

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(0.003)
        x = torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(i))
        if self.train and torch.rand(1) < 0.5:
            x = x.flip(-1)
        return x, i % 4


def main():
    torch.manual_seed(0)
    train = DataLoader(Pictures(400, True), batch_size=16, shuffle=True)
    test = DataLoader(Pictures(96, False), batch_size=16)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    start = time.time()
    for epoch in range(4):
        model.train()
        times, losses, end = deque(maxlen=20), deque(maxlen=20), time.time()
        for i, (x, y) in enumerate(train):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            times.append(time.time() - end)
            losses.append(loss.item())
            end = time.time()
            if i % 10 == 0:
                eta = datetime.timedelta(seconds=int(sum(times) / len(times) * (len(train) - i)))
                print(
                    f"Epoch: [{epoch}] [{i}/{len(train)}] eta: {eta} "
                    f"loss: {loss.item():.4f} time: {times[-1]:.4f}"
                )
        model.eval()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in test)
        print(f"Test: Acc@1 {100 * right / 96:.3f}")
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
            "checkpoint.pth",
        )
    print(f"Training time {datetime.timedelta(seconds=int(time.time() - start))}")


if __name__ == "__main__":
    main()
