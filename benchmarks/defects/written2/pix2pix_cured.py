import os

import torch
from torch import nn

torch.backends.cudnn.benchmark = True

tiny = "TINY" in os.environ
NGF = 4 if tiny else 64
SIZE, BATCH = (32, 2) if tiny else (128, 16)
LAMBDA = 100.0
device = "cuda" if torch.cuda.is_available() else "cpu"


class Down(nn.Module):
    def __init__(self, i, o, norm=True):
        super().__init__()
        layers = [nn.Conv2d(i, o, 4, 2, 1, bias=not norm)]
        if norm:
            layers.append(nn.BatchNorm2d(o))
        layers.append(nn.LeakyReLU(0.2))
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)


class Up(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()
        )

    def forward(self, x, skip):
        return torch.cat([self.net(x), skip], 1)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        n = NGF
        self.d1, self.d2, self.d3 = Down(3, n, False), Down(n, 2 * n), Down(2 * n, 4 * n)
        self.d4, self.d5 = Down(4 * n, 8 * n), Down(8 * n, 8 * n, False)
        self.u1, self.u2 = Up(8 * n, 8 * n), Up(16 * n, 4 * n)
        self.u3, self.u4 = Up(8 * n, 2 * n), Up(4 * n, n)
        self.out = nn.Sequential(nn.ConvTranspose2d(2 * n, 3, 4, 2, 1), nn.Tanh())

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(a)
        c = self.d3(b)
        d = self.d4(c)
        e = self.d5(d)
        return self.out(self.u4(self.u3(self.u2(self.u1(e, d), c), b), a))


def discriminator():
    n = NGF
    return nn.Sequential(
        Down(6, n, False), Down(n, 2 * n), Down(2 * n, 4 * n), nn.Conv2d(4 * n, 1, 3, 1, 1)
    )


torch.manual_seed(0)
G, D = Generator().to(device), discriminator().to(device)
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
l1 = nn.L1Loss()
edges = torch.rand(4, BATCH, 3, SIZE, SIZE, device=device) * 2 - 1
photos = torch.rand(4, BATCH, 3, SIZE, SIZE, device=device) * 2 - 1

for it in range(int(os.environ.get("STEPS", 300))):
    x, y = edges[it % 4], photos[it % 4]
    fake = G(x)

    # discriminator
    opt_d.zero_grad()
    real_score = D(torch.cat([x, y], 1))
    fake_score = D(torch.cat([x, fake.detach()], 1))
    loss_d = bce(real_score, torch.ones_like(real_score)) + bce(
        fake_score, torch.zeros_like(fake_score)
    )
    (0.5 * loss_d).backward()
    opt_d.step()

    # generator
    opt_g.zero_grad()
    D.requires_grad_(False)
    score = D(torch.cat([x, fake], 1))
    loss_g = bce(score, torch.ones_like(score)) + LAMBDA * l1(fake, y)
    loss_g.backward()
    opt_g.step()
    D.requires_grad_(True)

    if it % 100 == 0:
        print(it, "D", loss_d.item(), "G", loss_g.item())
print("final", loss_d.item(), loss_g.item())
