"""bfloat16 products with sizes that are no multiples of 8, cured by rounding them up."""

import torch

WANT = {"alignment"}
DEVICE, WIDTH = ("cuda", 4096) if torch.cuda.is_available() else ("cpu", 64)


def steps(cured):
    width = WIDTH if cured else WIDTH - 3
    layers = [torch.nn.Linear(width, width, bias=False) for _ in range(6)]
    model = torch.nn.Sequential(*layers).to(DEVICE, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    x = torch.randn(2048 if DEVICE == "cuda" else 8, width, device=DEVICE, dtype=torch.bfloat16)
    while True:
        optimizer.zero_grad()
        model(x).float().mean().backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    for _ in steps(cured=False):
        pass
