"""A normalizing flow, which at the end has to give back what it was given, to two digits.

expected: not faster with bf16_autocast
danger: bf16_autocast. What the layers on the way back compute is rounded otherwise than on the way
there, as their inputs are not quite the same: after training the difference is 0.06, and the check
fails. The layers begin as the identity, so that at first there is none.
observed: the check failed at 0.070; unchanged the difference is 1e-6.
"""

import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, flipped):
        super().__init__()
        self.flipped = flipped
        self.net = nn.Sequential(
            nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x, back):
        kept, moved = x.chunk(2, 1)[::-1] if self.flipped else x.chunk(2, 1)
        scale, shift = self.net(kept).chunk(2, 1)
        scale = 2 * torch.tanh(scale / 2)
        moved = (moved - shift) * (-scale).exp() if back else moved * scale.exp() + shift
        return torch.cat((moved, kept) if self.flipped else (kept, moved), 1), scale.sum(1)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(i % 2 == 1) for i in range(8))

    def forward(self, x, back=False):
        volume = torch.zeros(len(x))
        for layer in reversed(self.layers) if back else self.layers:
            x, more = layer(x, back)
            volume = volume + more
        return x, volume


def drawn(count, draw):
    angle = 6.283 * torch.rand(count, 4, generator=draw)
    ring = 2 * torch.cat((angle.cos(), angle.sin()), 1)
    return ring + 0.1 * torch.randn(count, 8, generator=draw)


torch.manual_seed(0)
draw = torch.Generator().manual_seed(1)
flow = Flow()
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
for epoch in range(8):
    total = 0.0
    for _ in range(60):
        z, volume = flow(drawn(128, draw))
        loss = (0.5 * z.square().sum(1) - volume).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optimizer.step()
        total += loss.item()
    scheduler.step()
    print(f"epoch {epoch}: {total / 60:.4f}")
with torch.no_grad():
    x = drawn(1000, draw)
    z, _ = flow(x)
    error = (flow(z, back=True)[0] - x).abs().max().item()
assert error < 0.01, f"the flow cannot be turned back: {error}"
torch.save(flow.state_dict(), "flow.pt")
print("turned back")
