"""DCGAN on 64x64 images, after the well-known tutorial."""

import os

import torch
import torch.nn as nn

tiny = os.environ.get("TINY")
nz, ngf, ndf = (8, 8, 8) if tiny else (128, 128, 64)
batch_size = 4 if tiny else 256
num_iters = int(os.environ.get("STEPS", 2000))
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def weights_init(m):
    name = m.__class__.__name__
    if "Conv" in name:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif "BatchNorm" in name:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


def up(cin, cout, stride=2, pad=1):
    return [
        nn.ConvTranspose2d(cin, cout, 4, stride, pad, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(True),
    ]


def down(cin, cout):
    return [
        nn.Conv2d(cin, cout, 4, 2, 1, bias=False),
        nn.BatchNorm2d(cout),
        nn.LeakyReLU(0.2, inplace=True),
    ]


netG = nn.Sequential(
    *up(nz, ngf * 8, 1, 0),
    *up(ngf * 8, ngf * 4),
    *up(ngf * 4, ngf * 2),
    *up(ngf * 2, ngf),
    nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False),
    nn.Tanh(),
)
netD = nn.Sequential(
    nn.Conv2d(3, ndf, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    *down(ndf, ndf * 2),
    *down(ndf * 2, ndf * 4),
    *down(ndf * 4, ndf * 8),
    nn.Conv2d(ndf * 8, 1, 4, 1, 0, bias=False),
    nn.Flatten(0),
)

torch.manual_seed(999)
for net in (netG, netD):
    net.apply(weights_init)
    net.to(device, memory_format=torch.channels_last)
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
faces = torch.rand(8, batch_size, 3, 64, 64, device=device) * 2 - 1
real_label = torch.ones(batch_size, device=device)
fake_label = torch.zeros(batch_size, device=device)

for i in range(num_iters):
    # (1) update D: maximise log(D(x)) + log(1 - D(G(z)))
    netD.zero_grad()
    noise = torch.randn(batch_size, nz, 1, 1, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        errD_real = criterion(netD(faces[i % 8]), real_label)
        fake = netG(noise)
        errD_fake = criterion(netD(fake.detach()), fake_label)
    errD = errD_real + errD_fake
    errD.backward()
    optimizerD.step()
    # (2) update G: maximise log(D(G(z)))
    netG.zero_grad()
    noise = torch.randn(batch_size, nz, 1, 1, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        errG = criterion(netD(netG(noise)), real_label)
    errG.backward()
    optimizerG.step()
    if i % 100 == 0:
        print(f"[{i}/{num_iters}] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f}")
print("final", errD.item(), errG.item())
