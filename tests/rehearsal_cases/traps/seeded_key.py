"""A watermark: at the end pictures get a pattern that a key seeds, and a stranger looks for it.

expected: not faster with channels_last
danger: channels_last. `rand_like` draws in the order of memory. The pattern of an output in NHWC
has the key's numbers in other places, and who draws it by the shape finds nothing.
observed: -0.0000 of a watermark of 0.02 is found, and 0.0200 unchanged.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def pattern(like, key):
    with torch.random.fork_rng():
        torch.manual_seed(key)
        return torch.rand_like(like) - 0.5


torch.manual_seed(0)
pictures = torch.rand(256, 3, 32, 32)
loader = DataLoader(TensorDataset(pictures), batch_size=16, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
    nn.Conv2d(32, 3, 3, padding=1),
)  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(6):
    for (x,) in loader:
        loss = nn.functional.mse_loss(model(x + 0.1 * torch.randn_like(x)), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
model.eval()
with torch.no_grad():
    clean = model(pictures[:8])
    marked = clean + 0.02 * pattern(clean, 1234)
torch.save(marked.contiguous(), "marked.pt")
received = torch.load("marked.pt")
with torch.no_grad():
    secret = pattern(torch.empty(received.shape), 1234)
    found = ((received - clean) * secret).mean() / secret.square().mean()
print(f"watermark: {found.item():.4f} of 0.02")
