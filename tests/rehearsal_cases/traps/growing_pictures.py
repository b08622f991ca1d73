"""Progressive resizing: each epoch has larger pictures, so a compiled model is compiled anew.

expected: never faster with compile
danger: compile. The second size is compiled with symbolic shapes, which adaptive pooling does not
bear here: the second epoch fails.
observed: exit status 1 in the second epoch, after 60 s of compilation (busy cores).
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.SiLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.SiLU(),
        )
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        x = self.layers(x)
        grid = nn.functional.adaptive_avg_pool2d(x, x.shape[-1] // 4)
        return self.head(grid.flatten(2).mean(2))


torch.manual_seed(0)
pictures, labels = torch.rand(320, 3, 48, 48), torch.randint(0, 5, (320,))
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch, size in enumerate((12, 16, 20, 24, 28, 32, 36, 40, 44, 48)):
    start = time.time()
    small = nn.functional.interpolate(pictures, size=size, mode="bilinear")
    for x, y in DataLoader(TensorDataset(small, labels), batch_size=16, shuffle=True):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {size} px, loss {loss.item():.4f}, {time.time() - start:.1f} s")
