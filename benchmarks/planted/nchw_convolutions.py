"""float16 convolutions in NCHW, whose kernels convert layouts, cured by channels-last."""

import torch

WANT = {"layout"}
DEVICE, SIDE = ("cuda", 56) if torch.cuda.is_available() else ("cpu", 8)
DTYPE = torch.float16 if DEVICE == "cuda" else torch.float32


def steps(cured):
    layers = [torch.nn.Conv2d(256, 256, 3, padding=1, bias=False) for _ in range(8)]
    model = torch.nn.Sequential(*layers).to(DEVICE, DTYPE)
    x = torch.randn(32 if DEVICE == "cuda" else 1, 256, SIDE, SIDE, device=DEVICE, dtype=DTYPE)
    if cured:
        model, x = (each.to(memory_format=torch.channels_last) for each in (model, x))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    while True:
        optimizer.zero_grad()
        model(x).float().mean().backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    for _ in steps(cured=False):
        pass
