"""Python that keeps the host from launching, cured by leaving it out."""

import torch

WANT = {"launch_bound", "sync", "input_bound"}
DEVICE, WIDTH = ("cuda", 1024) if torch.cuda.is_available() else ("cpu", 16)


def steps(cured):
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(8))).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(1024 if DEVICE == "cuda" else 8, WIDTH, device=DEVICE)
    while True:
        if not cured:
            sorted(str(number) for number in range(20_000))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    for _ in steps(cured=False):
        pass
