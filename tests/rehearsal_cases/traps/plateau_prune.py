"""Training until the loss stands still; then the convolutions are pruned and trained on.

expected: not faster with channels_last
danger: channels_last. The mask is taken with `.view(-1)`, late, at a plateau.
observed: status 1 after many epochs.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(320, 3, 16, 16)
y = (x[:, 0, :8].mean((1, 2)) > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 32, 3, 2, 1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(512, 2),
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
best, bad, masks, epoch = float("inf"), 0, None, 0
while True:
    total = 0.0
    for a, b in loader:
        loss = F.cross_entropy(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if masks:
            for p, m in masks:
                p.data *= m
        total += loss.item() / len(loader)
    epoch += 1
    print(f"epoch {epoch} loss {total:.4f} pruned {bool(masks)}")
    best, bad = (total, 0) if total < 0.98 * best else (best, bad + 1)
    if bad >= 3:
        if masks:
            break
        masks, bad = [], 0
        for layer in (model[0], model[2]):
            w = layer.weight.detach()
            threshold = w.abs().view(-1).kthvalue(w.numel() // 2).values
            masks.append((layer.weight, (w.abs() > threshold).float()))
torch.save(model.state_dict(), "pruned.pt")
