"""A GAN: two models, two optimizers, samples of a fixed noise saved after each epoch.

expected: faster with dataloader_workers
observed: all passes over the data in 12.1 s instead of 20.9 s (1.72x), on two busy cores; exit
status 0.
"""

import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 576

    def __getitem__(self, index):
        time.sleep(0.003)
        image = torch.zeros(1, 16, 16)
        size = 2 + index % 8
        image[:, 4 : 4 + size, 4 : 4 + size] = 1
        return image + 0.02 * torch.randn(1, 16, 16), index % 8


netG = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 256), nn.Tanh())
netD = nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
torch.manual_seed(999)
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
fixed_noise = torch.randn(16, 16)
dataloader = DataLoader(Squares(), batch_size=12, shuffle=True)
for epoch in range(8):
    for i, (real, _) in enumerate(dataloader):
        netD.zero_grad()
        fake = netG(torch.randn(len(real), 16))
        errD = criterion(netD(real)[:, 0], torch.ones(len(real)))
        errD = errD + criterion(netD(fake.detach())[:, 0], torch.zeros(len(real)))
        errD.backward()
        optimizerD.step()
        netG.zero_grad()
        errG = criterion(netD(fake)[:, 0], torch.ones(len(real)))
        errG.backward()
        optimizerG.step()
    print(f"[{epoch}/8] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f}")
    with torch.no_grad():
        torch.save(netG(fixed_noise), f"fake_samples_epoch_{epoch:03d}.pt")
