"""A variational autoencoder with `torch.randn_like` in its forward pass; reconstructions are saved.

expected: faster with dataloader_workers
observed: all passes over the data in 12.7 s instead of 15.4 s (1.21x), on two busy cores; exit
status 0.
"""

import argparse
import time

import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description="VAE example")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--epochs", type=int, default=7)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(args.seed)


class Digits(Dataset):
    def __init__(self, n, seed):
        self.x = torch.rand(n, 1, 14, 14, generator=torch.Generator().manual_seed(seed)).round()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.002)
        return self.x[i], 0


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(196, 128)
        self.fc21 = nn.Linear(128, 16)
        self.fc22 = nn.Linear(128, 16)
        self.fc3 = nn.Linear(16, 128)
        self.fc4 = nn.Linear(128, 196)

    def forward(self, x):
        h1 = F.relu(self.fc1(x.view(-1, 196)))
        mu, logvar = self.fc21(h1), self.fc22(h1)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x.view(-1, 196), reduction="sum")
    return bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


model = VAE()
optimizer = optim.Adam(model.parameters(), lr=1e-3)
train_loader = DataLoader(Digits(640, 0), batch_size=args.batch_size, shuffle=True)
test_loader = DataLoader(Digits(160, 1), batch_size=args.batch_size)


def train(epoch):
    model.train()
    train_loss = 0
    for data, _ in train_loader:
        optimizer.zero_grad()
        recon, mu, logvar = model(data)
        loss = loss_function(recon, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
    print(f"====> Epoch: {epoch} Average loss: {train_loss / len(train_loader.dataset):.4f}")


def test(epoch):
    model.eval()
    test_loss = 0
    with torch.no_grad():
        for i, (data, _) in enumerate(test_loader):
            recon, mu, logvar = model(data)
            test_loss += loss_function(recon, data, mu, logvar).item()
            if i == 0:
                torch.save(recon, f"reconstruction_{epoch}.pt")
    print(f"====> Test set loss: {test_loss / len(test_loader.dataset):.4f}")


for epoch in range(1, args.epochs + 1):
    train(epoch)
    test(epoch)
