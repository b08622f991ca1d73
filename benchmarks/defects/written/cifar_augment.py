"""ResNet on 96x96 images with crop, flip, colour jitter and cutout."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

TINY = bool(os.environ.get("TINY"))
STEPS = int(os.environ.get("STEPS", 2000))
BATCH, WIDTH, SIZE = (4, 8, 32) if TINY else (256, 64, 96)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Images(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(0)
        self.images = rng.integers(0, 255, (512, SIZE + 8, SIZE + 8, 3), dtype=np.uint8)
        self.labels = rng.integers(0, 100, 512)
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        img = self.images[i % 512]
        y, x = rng.integers(0, 8, 2)
        img = img[y : y + SIZE, x : x + SIZE].astype(np.float32) / 255
        if rng.random() < 0.5:
            img = img[:, ::-1]
        gray = img.mean(axis=2, keepdims=True)
        img = gray + (img - gray) * rng.uniform(0.6, 1.4)  # saturation
        img = (img - img.mean()) * rng.uniform(0.6, 1.4) + img.mean()  # contrast
        img = np.clip(img, 0, 1) ** rng.uniform(0.8, 1.2)  # gamma
        cy, cx = rng.integers(0, SIZE - 16, 2)
        img[cy : cy + 16, cx : cx + 16] = 0
        img = (img - 0.45) / 0.25
        return torch.from_numpy(img.transpose(2, 0, 1).astype(np.float32)), int(
            self.labels[i % 512]
        )


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.short = (
            nn.Conv2d(cin, cout, 1, stride, bias=False)
            if stride > 1 or cin != cout
            else nn.Identity()
        )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(out)) + self.short(x), inplace=True)


def resnet():
    layers = [
        nn.Conv2d(3, WIDTH, 3, 1, 1, bias=False),
        nn.BatchNorm2d(WIDTH),
        nn.ReLU(inplace=True),
    ]
    cin = WIDTH
    for cout, stride in (
        (WIDTH, 2),
        (WIDTH, 1),
        (2 * WIDTH, 2),
        (2 * WIDTH, 1),
        (4 * WIDTH, 2),
        (4 * WIDTH, 1),
    ):
        layers.append(Block(cin, cout, stride))
        cin = cout
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 100))


def main():
    torch.manual_seed(0)
    model = resnet().to(device, memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    loader = DataLoader(Images(BATCH * STEPS), batch_size=BATCH, drop_last=True)
    total = torch.zeros((), device=device)
    for x, y in loader:
        x = x.to(device, non_blocking=True).contiguous(memory_format=torch.channels_last)
        y = y.to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total += loss.detach()
    print("final", total.item() / STEPS)


if __name__ == "__main__":
    main()
