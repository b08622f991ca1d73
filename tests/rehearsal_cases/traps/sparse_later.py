"""The embedding is frozen in the first epoch, and has sparse gradients afterwards.

expected: not faster with fused_optimizer
danger: fused_optimizer. The fused kernel does not take sparse gradients: the second epoch fails.
observed: exit status 1 in the second epoch: `_fused_sgd` does not support sparse gradients.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(20000, 64, sparse=True)
        layers = [layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.ReLU())]
        self.layers = nn.Sequential(*layers, nn.Linear(64, 4))

    def forward(self, x):
        return self.layers(self.embed(x))


torch.manual_seed(0)
words = torch.randint(0, 20000, (4000, 12))
loader = DataLoader(TensorDataset(words, words[:, 0] % 4), batch_size=32, shuffle=True)
model = Tagger()
model.embed.weight.requires_grad_(False)  # pre-trained
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(6):
    if epoch == 1:
        model.embed.weight.requires_grad_(True)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
torch.save(model.state_dict(), "tagger.pt")
