"""Large batches from pageable memory, cured by pinning them and not waiting."""

import torch

WANT = {"copy"}
ON_GPU = torch.cuda.is_available()
DEVICE, ROWS = ("cuda", 1 << 14) if ON_GPU else ("cpu", 8)


def steps(cured):
    batches = [torch.randn(ROWS, 2048) for _ in range(4)]
    if cured and ON_GPU:
        batches = [batch.pin_memory() for batch in batches]
    model = torch.nn.Linear(2048, 2048).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    number = 0
    while True:
        x = batches[number % 4].to(DEVICE, non_blocking=cured)
        number += 1
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    for _ in steps(cured=False):
        pass
