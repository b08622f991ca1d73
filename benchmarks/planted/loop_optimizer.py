"""Adam that updates one parameter after the other, cured by its fused kernel."""

import torch

WANT = {"optimizer", "launch_bound"}
DEVICE, WIDTH = ("cuda", 512) if torch.cuda.is_available() else ("cpu", 16)


def steps(cured):
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(60))).to(DEVICE)
    kind = {"fused": True} if cured else {"foreach": False, "fused": False}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, **kind)
    x = torch.randn(4096 if DEVICE == "cuda" else 8, WIDTH, device=DEVICE)
    while True:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    for _ in steps(cured=False):
        pass
