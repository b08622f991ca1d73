"""Large bfloat16 products back to back: nothing is wrong."""

import torch

WANT = set()
DEVICE, WIDTH = ("cuda", 8192) if torch.cuda.is_available() else ("cpu", 64)


def steps(cured):
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)]
    model = torch.nn.Sequential(*layers).to(DEVICE, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    x = torch.randn(8192 if DEVICE == "cuda" else 8, WIDTH, device=DEVICE, dtype=torch.bfloat16)
    while True:
        optimizer.zero_grad()
        model(x).float().mean().backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    for _ in steps(cured=False):
        pass
