"""Super-resolution by a wide residual network, channels last and bfloat16."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = bool(os.environ.get("TINY"))
CH, BLOCKS, RES, BATCH = (8, 2, 16, 2) if TINY else (256, 8, 96, 32)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(CH, CH, 3, padding=1)
        self.two = nn.Conv2d(CH, CH, 3, padding=1)

    def forward(self, x):
        return x + self.two(F.relu(self.one(x), inplace=True))


class Upscaler(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(3, CH, 3, padding=1)
        self.body = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.tail = nn.Sequential(nn.Conv2d(CH, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        return self.tail(self.body(self.head(x)))


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    layout = torch.channels_last
    net = Upscaler().to(device, torch.bfloat16, memory_format=layout)
    opt = torch.optim.Adam(net.parameters(), lr=1e-4, fused=device == "cuda")
    low = torch.rand(BATCH, 3, RES, RES, device=device, dtype=torch.bfloat16).contiguous(
        memory_format=layout
    )
    high = torch.rand(BATCH, 3, 2 * RES, 2 * RES, device=device, dtype=torch.bfloat16)
    for step in range(int(os.environ.get("STEPS", 2000))):
        loss = F.l1_loss(net(low), high)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print(step, loss.item())
    print("final", loss.item())


main()
