"""Every 60 steps the script writes which samples are hard; each sample is read by that file.

expected: not faster with dataloader_workers
danger: dataloader_workers. They read ahead: four batches come by the file before.
observed: one reads the file while it is written, and the script ends with a JSONDecodeError.
"""

import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Mined(Dataset):
    def __len__(self):
        return 1600

    def __getitem__(self, i):
        time.sleep(0.0015)
        with open("hard.json") as file:
            hard = json.load(file)
        j = hard[i % len(hard)] if i % 2 else i
        return torch.randn(32, generator=torch.Generator().manual_seed(j)), j % 2, j


if __name__ == "__main__":
    torch.manual_seed(0)
    with open("hard.json", "w") as file:
        json.dump(list(range(50)), file)
    loader = DataLoader(Mined(), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses, step = torch.zeros(1600), 0
    for epoch in range(5):
        for x, y, j in loader:
            each = nn.functional.cross_entropy(model(x), y, reduction="none")
            optimizer.zero_grad()
            each.mean().backward()
            optimizer.step()
            losses[j] = each.detach()
            step += 1
            if step % 60 == 0:
                with open("hard.json", "w") as file:
                    json.dump(losses.topk(50).indices.tolist(), file)
        print(f"epoch {epoch}: {each.mean().item():.4f}")
