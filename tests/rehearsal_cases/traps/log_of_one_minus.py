"""A classifier gives probabilities, and the likelihood is written down as in the textbook.

expected: not faster with bf16_autocast
danger: bf16_autocast. In bfloat16 a probability above 0.998 is 1, and the logarithm of one minus it
is minus infinity: 0 times that is not a number, as soon as the model is sure of any sample. In
float32 that takes logits of 17.
observed: a loss of nan instead of 0.1576 in the last epoch, from the third one on.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(3200, 64)
y = (x[:, :6].sum(1) + 0.5 * torch.randn(3200) > 0).float()
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid())
optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
for epoch in range(6):
    total = 0.0
    for batch, label in loader:
        p = model(batch).squeeze(1)
        loss = -(label * torch.log(p) + (1 - label) * torch.log(1 - p)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
torch.save(model.state_dict(), "model.pt")
