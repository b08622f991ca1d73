"""A value is read after each layer, cured by reading none."""

import torch

WANT = {"sync"}
DEVICE, WIDTH = ("cuda", 1024) if torch.cuda.is_available() else ("cpu", 16)


def steps(cured):
    torch.set_float32_matmul_precision("high")
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(12))).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(8192 if DEVICE == "cuda" else 8, WIDTH, device=DEVICE)
    while True:
        optimizer.zero_grad()
        y = x
        for layer in model:
            y = layer(y)
            if not cured and y[0, 0].item() > 1e9:
                raise OverflowError
        y.square().mean().backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    for _ in steps(cured=False):
        pass
