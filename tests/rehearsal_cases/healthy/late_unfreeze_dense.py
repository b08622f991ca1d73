"""Unfreezing of the backbone from the fourth epoch on; all gradients are dense.

expected: right with fused_optimizer
observed: the same loss in each epoch of the whole run, to all printed digits.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(5000, 64)
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x):
        return self.head(self.embed(x))


torch.manual_seed(0)
words = torch.randint(0, 5000, (2000, 12))
loader = DataLoader(TensorDataset(words, words[:, 0] % 4), batch_size=32, shuffle=True)
model = Tagger()
model.embed.weight.requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(6):
    if epoch == 3:
        model.embed.weight.requires_grad_(True)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
torch.save(model.state_dict(), "tagger.pt")
