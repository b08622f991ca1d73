"""Training that writes what most do: checkpoints with the optimizer, a history, a table, a log.

expected: faster with dataloader_workers
observed: 1.81x from start to end; all files hold the same but for times.
"""

import csv
import json
import logging
import pickle
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(filename="train.log", format="%(asctime)s %(message)s", level=logging.INFO)


class Waves(Dataset):
    def __len__(self):
        return 2048

    def __getitem__(self, index):
        time.sleep(0.002)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(32, generator=generator), index % 4


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
history = []
table = open("history.csv", "w", newline="")
rows = csv.writer(table)
rows.writerow(["epoch", "loss", "lr", "seconds"])
for epoch in range(4):
    began = time.time()
    for inputs, labels in DataLoader(Waves(), batch_size=64, shuffle=True):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    history.append({"epoch": epoch, "loss": loss.item(), "took": time.time() - began})
    rows.writerow([epoch, f"{loss.item():.6f}", scheduler.get_last_lr()[0], time.time() - began])
    logging.info("epoch %d: loss %.6f", epoch, loss.item())
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
        f"checkpoint_{epoch}.pt",
    )
table.close()
torch.save(model, "model.pt")
with open("history.json", "w") as file:
    json.dump(history, file)
with open("history.pkl", "wb") as file:
    pickle.dump({"losses": [each["loss"] for each in history], "when": time.time()}, file)
print("done")
