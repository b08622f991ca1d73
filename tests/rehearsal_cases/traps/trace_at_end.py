"""A model is exported with `torch.jit.trace` after its training.

expected: not faster with compile
danger: compile. A compiled module cannot be traced: the script fails at its end.
observed: exit status 1 at the end: jit.trace of a dynamo-optimized function is not supported.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(4, 32, 5), nn.GELU(), nn.Conv1d(32, 32, 5), nn.GELU(), nn.Conv1d(32, 32, 5)
        )
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.body(x).mean(-1))


def main():
    torch.manual_seed(0)
    x = torch.randn(2048, 4, 100)
    y = (x[:, 0].mean(-1) * 30).long().clamp(-1, 1) + 1
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    model = Detector()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best = 0.0
    for epoch in range(5):
        model.train()
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(x[:512]).argmax(1) == y[:512]).float().mean().item()
        print(f"epoch {epoch}: {accuracy:.3f}")
        if accuracy >= best:
            best = accuracy
    torch.jit.trace(model, x[:1]).save("detector.pt")
    print("exported, best", best)


if __name__ == "__main__":
    main()
