"""The allocator's cache is emptied in each step, cured by leaving it alone."""

import torch

WANT = {"allocator"}
DEVICE, WIDTH = ("cuda", 2048) if torch.cuda.is_available() else ("cpu", 16)


def steps(cured):
    torch.set_float32_matmul_precision("high")
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(8))).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(4096 if DEVICE == "cuda" else 8, WIDTH, device=DEVICE)
    while True:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if not cured and DEVICE == "cuda":
            torch.cuda.empty_cache()
        yield


if __name__ == "__main__":
    for _ in steps(cured=False):
        pass
