"""After training, features of the backbone are flattened with `.view` for a linear probe.

expected: not faster with channels_last
danger: channels_last. What the backbone returns is NHWC then, and has no such view.
observed: exit status 1 after the last epoch, at `view`.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 48, 3, stride=2), nn.ReLU()
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(48, 7)

    def forward(self, x):
        return self.head(self.pool(self.backbone(x)).flatten(1))


torch.manual_seed(0)
x, y = torch.randn(512, 3, 24, 24), torch.randint(0, 7, (512,))
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(5):
    for images, labels in DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())

with torch.no_grad():
    features = torch.cat([model.backbone(x[i : i + 64]).view(64, -1) for i in range(0, 512, 64)])
solution = torch.linalg.lstsq(features[:, :200], nn.functional.one_hot(y, 7).float()).solution
print("linear probe", ((features[:, :200] @ solution).argmax(1) == y).float().mean().item())
