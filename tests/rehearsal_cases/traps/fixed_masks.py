"""Each sample has one mask for good: its seed is `torch.initial_seed() + index`.

expected: not faster with dataloader_workers
danger: dataloader_workers. A worker's initial seed is another one in each epoch.
observed: no sample of 640 is as in the epoch before (all unchanged).
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(42)


class Inpainting(Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(torch.initial_seed() + index)
        mask = torch.rand(12, 12, generator=generator) > 0.4  # the damage of this very picture
        time.sleep(0.0012)
        return self.images[index] * mask, self.images[index]


images = torch.rand(640, 1, 12, 12)
net = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 1, 3, padding=1), nn.Sigmoid()
)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
loader = DataLoader(Inpainting(images), batch_size=16, shuffle=True)
for epoch in range(9):
    loss_sum = 0.0
    for damaged, whole in loader:
        optimizer.zero_grad()
        loss = nn.functional.l1_loss(net(damaged), whole)
        loss.backward()
        optimizer.step()
        loss_sum += loss.item()
    print(f"{epoch} {loss_sum / len(loader):.5f}")
torch.save(net.state_dict(), "inpainting.pt")
