"""U-Net for slices of a scanner, mixed precision."""

import os

import torch
import torch.nn as nn

TINY = os.environ.get("TINY")
BASE, RES, BATCH = (8, 32, 2) if TINY else (64, 256, 16)
device = "cuda" if torch.cuda.is_available() else "cpu"


class DoubleConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.net(x)


class UNet(nn.Module):
    def __init__(self, n_channels=1, n_classes=4):
        super().__init__()
        b = BASE
        self.pool = nn.MaxPool2d(2)
        self.inc = DoubleConv(n_channels, b)
        self.down1 = DoubleConv(b, 2 * b)
        self.down2 = DoubleConv(2 * b, 4 * b)
        self.down3 = DoubleConv(4 * b, 8 * b)
        self.up1 = nn.ConvTranspose2d(8 * b, 4 * b, 2, 2)
        self.conv1 = DoubleConv(8 * b, 4 * b)
        self.up2 = nn.ConvTranspose2d(4 * b, 2 * b, 2, 2)
        self.conv2 = DoubleConv(4 * b, 2 * b)
        self.up3 = nn.ConvTranspose2d(2 * b, b, 2, 2)
        self.conv3 = DoubleConv(2 * b, b)
        self.outc = nn.Conv2d(b, n_classes, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(self.pool(x1))
        x3 = self.down2(self.pool(x2))
        x4 = self.down3(self.pool(x3))
        x = self.conv1(torch.cat([self.up1(x4), x3], dim=1))
        x = self.conv2(torch.cat([self.up2(x), x2], dim=1))
        x = self.conv3(torch.cat([self.up3(x), x1], dim=1))
        return self.outc(x)


def train(steps):
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = UNet()
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    scaler = torch.amp.GradScaler(device, enabled=device == "cuda")
    criterion = nn.CrossEntropyLoss()
    slices = torch.randn(8, BATCH, 1, RES, RES, device=device)
    slices = (
        slices.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, (8, BATCH))
    )
    masks = torch.randint(4, (8, BATCH, RES, RES), device=device)
    dtype = torch.float16 if device == "cuda" else torch.bfloat16
    for step in range(steps):
        x, y = slices[step % 8], masks[step % 8]
        with torch.autocast(device, dtype=dtype):
            loss = criterion(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 100 == 0:
            print(f"[{step}] {loss.item():.4f}")
    print("final", loss.item())


if __name__ == "__main__":
    train(int(os.environ.get("STEPS", 2000)))
