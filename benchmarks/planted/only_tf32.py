"""Products in TF32, cured by bfloat16 autocast."""

import torch

WANT = {"precision", "tensor_core"}
DEVICE, WIDTH = ("cuda", 4096) if torch.cuda.is_available() else ("cpu", 64)


def steps(cured):
    torch.set_float32_matmul_precision("high")
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(6))).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(4096 if DEVICE == "cuda" else 8, WIDTH, device=DEVICE)
    while True:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16, enabled=cured):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    for _ in steps(cured=False):
        pass
