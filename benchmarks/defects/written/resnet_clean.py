"""Bottleneck ResNet on synthetic ImageNet batches that stay on the device."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = bool(os.environ.get("TINY"))
W, RES, BATCH, CLASSES = (8, 32, 2, 10) if TINY else (64, 224, 128, 1000)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Bottleneck(nn.Module):
    def __init__(self, cin, mid, stride):
        super().__init__()
        cout = 4 * mid
        self.a = nn.Conv2d(cin, mid, 1, bias=False)
        self.b = nn.Conv2d(mid, mid, 3, stride, 1, bias=False)
        self.c = nn.Conv2d(mid, cout, 1, bias=False)
        self.n1, self.n2, self.n3 = nn.BatchNorm2d(mid), nn.BatchNorm2d(mid), nn.BatchNorm2d(cout)
        self.short = None
        if stride != 1 or cin != cout:
            self.short = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x):
        y = F.relu(self.n1(self.a(x)), inplace=True)
        y = F.relu(self.n2(self.b(y)), inplace=True)
        y = self.n3(self.c(y))
        return F.relu(y + (x if self.short is None else self.short(x)), inplace=True)


def build():
    layers = [
        nn.Conv2d(3, W, 7, 2, 3, bias=False),
        nn.BatchNorm2d(W),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    cin = W
    for stage, depth in enumerate((3, 4, 6, 3)):
        for i in range(1 if TINY else depth):
            layers.append(Bottleneck(cin, W << stage, 2 if stage and not i else 1))
            cin = 4 * W << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, CLASSES))


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = build().to(device, memory_format=torch.channels_last)
    if not TINY:
        model = torch.compile(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=device == "cuda")
    x = torch.randn(BATCH, 3, RES, RES, device=device).contiguous(memory_format=torch.channels_last)
    y = torch.randint(CLASSES, (BATCH,), device=device)
    for step in range(int(os.environ.get("STEPS", 2000))):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 200 == 0:
            print(step, loss.item())
    print("final", loss.item())


if __name__ == "__main__":
    main()
