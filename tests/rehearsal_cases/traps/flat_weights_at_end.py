"""All weights as one vector, `p.view(-1)`, for the averaging of several runs.

expected: not faster with channels_last
danger: channels_last. Weights in NHWC have no flat view: the script fails at its end.
observed: exit status 1 after the last epoch (`view size is not compatible with input tensor's size
and stride`), with the same losses until then.
"""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(64, 64, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, 10),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
images, labels = torch.randn(512, 3, 24, 24), torch.randint(0, 10, (512,))
for epoch in range(5):
    order = torch.randperm(512)
    for i in range(0, 512, 16):
        batch = order[i : i + 16]
        loss = nn.functional.cross_entropy(net(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
vector = torch.cat([p.detach().view(-1) for p in net.parameters()])
torch.save(vector, "vector.pt")
print(vector.shape, vector.norm().item())
