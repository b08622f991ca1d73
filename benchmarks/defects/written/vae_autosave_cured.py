"""A variational autoencoder over 128x128 images, safe against preemption."""

import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

SAVE_EVERY = 1000
TINY = bool(os.environ.get("TINY"))
WIDTH, RES, LATENT, BATCH = (8, 32, 8, 2) if TINY else (64, 128, 512, 128)
FLAT = 8 * WIDTH * (RES // 16) ** 2
device = "cuda" if torch.cuda.is_available() else "cpu"


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        w = WIDTH
        chans = [3, w, 2 * w, 4 * w, 8 * w]
        self.encoder = nn.Sequential(
            *[
                nn.Sequential(nn.Conv2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))
                for a, b in zip(chans[:-1], chans[1:])
            ]
        )
        self.to_latent = nn.Linear(FLAT, 2 * LATENT)
        self.from_latent = nn.Linear(LATENT, FLAT)
        chans = [8 * w, 4 * w, 2 * w, w]
        self.decoder = nn.Sequential(
            *[
                nn.Sequential(
                    nn.ConvTranspose2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.ReLU(inplace=True)
                )
                for a, b in zip(chans[:-1], chans[1:])
            ],
            nn.ConvTranspose2d(w, 3, 4, 2, 1),
        )

    def forward(self, x):
        mean, logvar = self.to_latent(self.encoder(x).flatten(1)).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        side = RES // 16
        h = self.from_latent(z).view(len(x), 8 * WIDTH, side, side)
        return self.decoder(h), mean, logvar


def save(path, step, model, optimizer):
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


def main(folder):
    torch.manual_seed(0)
    model = VAE().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    pool = torch.rand(4, BATCH, 3, RES, RES, device=device)
    for step in range(int(os.environ.get("STEPS", 2000))):
        x = pool[step % 4].contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, dtype=torch.bfloat16):
            recon, mean, logvar = model(x)
        mean, logvar = mean.float(), logvar.float()
        rec = F.mse_loss(recon.float(), x, reduction="sum") / len(x)
        kl = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(1).mean()
        loss = rec + kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % SAVE_EVERY == 0:
            save(os.path.join(folder, "last.pt"), step, model, optimizer)
        if step % 100 == 0:
            print(f"{step} rec {rec.item():.2f} kl {kl.item():.2f}")
    print("final", loss.item())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
