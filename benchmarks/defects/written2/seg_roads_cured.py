# roads from aerial images: U-Net, Dice + BCE, mixed precision
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

SMALL = os.environ.get("TINY")
dev = "cuda" if torch.cuda.is_available() else "cpu"
WIDTHS = [4, 8, 16] if SMALL else [64, 128, 256, 512]
SIZE, BS = (32, 2) if SMALL else (384, 16)
torch.backends.cudnn.benchmark = True


def block(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True),
        nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, widths=WIDTHS):
        super().__init__()
        self.stem = block(3, widths[0])
        self.down = nn.ModuleList(block(a, b) for a, b in zip(widths, widths[1:]))
        pairs = list(zip(widths, widths[1:]))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs)
        self.merge = nn.ModuleList(block(2 * a, a) for a, b in pairs)
        self.out = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x):
        skips = []
        x = self.stem(x)
        for d in self.down:
            skips.append(x)
            x = d(F.max_pool2d(x, 2))
        for u, m in zip(self.up, self.merge):
            x = m(torch.cat([u(x), skips.pop()], 1))
        return self.out(x)


def criterion(logits, mask):
    p = logits.sigmoid()
    dice = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
    return dice + F.binary_cross_entropy_with_logits(logits, mask)


torch.manual_seed(17)
net = UNet().to(dev, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True)
tiles = torch.rand(4, BS, 3, SIZE, SIZE, device=dev)
masks = (torch.rand(4, BS, 1, SIZE, SIZE, device=dev) > 0.9).float()

running = torch.zeros((), device=dev)
for step in range(int(os.environ.get("STEPS", 150))):
    images = tiles[step % 4].contiguous(memory_format=torch.channels_last)
    with torch.autocast(dev, torch.bfloat16):
        logits = net(images)
    loss = criterion(logits.float(), masks[step % 4])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    running += loss.detach()
    if (step + 1) % 50 == 0:
        print(step + 1, running.item() / 50)
        running.zero_()
print("final", loss.item())
