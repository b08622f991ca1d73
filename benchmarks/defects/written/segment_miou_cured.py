"""Segmentation with a small encoder and decoder; mean IoU is followed while training."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = "TINY" in os.environ
STEPS = int(os.environ.get("STEPS", 2000))
CLASSES = 5 if TINY else 21
W, RES, BATCH = (8, 32, 2) if TINY else (64, 256, 16)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class MeanIoU:
    def __init__(self):
        self.matrix = torch.zeros(CLASSES, CLASSES, dtype=torch.long, device=device)

    def update(self, pred, target):
        pairs = (target * CLASSES + pred).flatten()
        self.matrix.view(-1).index_add_(0, pairs, torch.ones_like(pairs))

    def value(self):
        m = self.matrix.double()
        inter = m.diagonal()
        union = m.sum(0) + m.sum(1) - inter
        return (inter / union.clamp(min=1)).mean().item()


def conv(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)
    )


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.e1 = nn.Sequential(conv(3, W, 2), conv(W, W))
        self.e2 = nn.Sequential(conv(W, 2 * W, 2), conv(2 * W, 2 * W))
        self.e3 = nn.Sequential(conv(2 * W, 4 * W, 2), conv(4 * W, 4 * W), conv(4 * W, 4 * W))
        self.d2 = conv(6 * W, 2 * W)
        self.d1 = conv(3 * W, W)
        self.head = nn.Conv2d(W, CLASSES, 1)

    def forward(self, x):
        a = self.e1(x)
        b = self.e2(a)
        c = self.e3(b)
        b = self.d2(torch.cat([F.interpolate(c, scale_factor=2.0), b], dim=1))
        a = self.d1(torch.cat([F.interpolate(b, scale_factor=2.0), a], dim=1))
        return F.interpolate(self.head(a), scale_factor=2.0)


def main():
    torch.manual_seed(11)
    net = Segmenter().to(device, memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(4, BATCH, 3, RES, RES, device=device)
    labels = torch.randint(CLASSES, (4, BATCH, RES, RES), device=device)
    miou = MeanIoU()
    for step in range(STEPS):
        x = images[step % 4].contiguous(memory_format=torch.channels_last)
        y = labels[step % 4]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            scores = net(x)
            loss = F.cross_entropy(scores, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        miou.update(scores.argmax(dim=1), y)
        if (step + 1) % 200 == 0:
            print(step + 1, "loss", loss.item(), "mIoU", miou.value())
    print("final", loss.item(), miou.value())


if __name__ == "__main__":
    main()
