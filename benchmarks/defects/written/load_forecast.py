"""Forecast electric load with a temporal convolutional net, windows drawn at random."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = os.environ.get("TINY", "0") != "0"
SERIES, HOURS = (10, 500) if TINY else (2000, 20_000)
PAST, FUTURE = (32, 8) if TINY else (1024, 24)
BATCH, CH, BLOCKS = (4, 8, 2) if TINY else (1024, 64, 6)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Windows:
    """The whole history (160 MB) is in memory; a batch is cut out of it."""

    def __init__(self):
        gen = torch.Generator().manual_seed(0)
        t = torch.arange(HOURS) / 24 * 2 * torch.pi
        phase = torch.rand(SERIES, 1, generator=gen) * 6
        self.load = torch.sin(t + phase) + 0.1 * torch.randn(SERIES, HOURS, generator=gen)
        self.gen = gen
        self.span = torch.arange(PAST + FUTURE, device=self.load.device)

    def draw(self):
        who = torch.randint(SERIES, (BATCH, 1), generator=self.gen)
        when = torch.randint(HOURS - PAST - FUTURE, (BATCH, 1), generator=self.gen)
        who, when = who.to(self.load.device), when.to(self.load.device)
        window = self.load[who, when + self.span].to(device)
        return window[:, None, :PAST], window[:, PAST:]


class Block(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv1 = nn.Conv1d(CH, CH, 3, dilation=dilation)
        self.conv2 = nn.Conv1d(CH, CH, 1)

    def forward(self, x):
        h = F.relu(self.conv1(F.pad(x, (self.pad, 0))))
        return x + self.conv2(h)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Conv1d(1, CH, 1)
        self.blocks = nn.Sequential(*(Block(2**i) for i in range(BLOCKS)))
        self.out = nn.Linear(CH, FUTURE)

    def forward(self, past):
        return self.out(self.blocks(self.inp(past))[:, :, -1])


def main():
    torch.manual_seed(0)
    windows = Windows()
    net = Forecaster().to(device)
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for step in range(int(os.environ.get("STEPS", 2000))):
        past, future = windows.draw()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.l1_loss(net(past), future)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print(step, loss.item())
    print("final", loss.item())


if __name__ == "__main__":
    main()
