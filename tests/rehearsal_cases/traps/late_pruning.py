"""Gradual magnitude pruning with torch's own prune, from the fourth epoch on.

expected: not faster with channels_last
danger: channels_last. Prune's masks are taken with `.view(-1)`, which weights in NHWC do not
have: the run crashes in its fourth epoch.
observed: exit status 1 in the fourth epoch.
"""

import torch
from torch import nn
from torch.nn.utils import prune
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x, y = torch.randn(512, 3, 16, 16), torch.randint(0, 4, (512,))
model = nn.Sequential(
    nn.Conv2d(3, 16, 3),
    nn.ReLU(),
    nn.Conv2d(16, 24, 3),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(24, 4),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
for epoch in range(7):
    if epoch >= 3:
        for layer in model:
            if isinstance(layer, nn.Conv2d):
                prune.l1_unstructured(layer, "weight", amount=0.2)
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
torch.save(model.state_dict(), "pruned.pt")
