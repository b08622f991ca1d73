"""Attention as softmax between two products, cured by PyTorch's fused kernel."""

import torch
from torch.nn import functional

WANT = {"attention"}
ON_GPU = torch.cuda.is_available()
DEVICE, LENGTH = ("cuda", 2048) if ON_GPU else ("cpu", 64)


class Attention(torch.nn.Module):
    """What a script would call."""

    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(1024, 3072, dtype=torch.bfloat16)

    def forward(self, x, cured):
        shape = (x.shape[0], x.shape[1], 16, 64)
        query, key, value = (
            part.reshape(shape).transpose(1, 2) for part in self.project(x).chunk(3, -1)
        )
        if cured:
            return functional.scaled_dot_product_attention(query, key, value)
        return torch.softmax(query @ key.transpose(-2, -1) / 8.0, -1) @ value


def steps(cured):
    model = torch.nn.ModuleList([Attention() for _ in range(8)]).to(DEVICE)
    x = torch.randn(8, LENGTH, 1024, device=DEVICE, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    while True:
        optimizer.zero_grad()
        sum(layer(x, cured).float().mean() for layer in model).backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    for _ in steps(cured=False):
        pass
