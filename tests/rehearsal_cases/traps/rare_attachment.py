"""Some records have an attachment, which is read by a function that comes with the record.

expected: not faster with dataloader_workers
danger: dataloader_workers. A function that was made on the way cannot be pickled: the first batch
with such a record, far behind in the table, is lost in the worker, and waited for without an end.
observed: "Can't pickle local object", and nothing more (ended after three minutes).
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self):
        self.x = torch.randn(640, 40)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.0012)
        record = {"x": self.x[i]}
        if i % 400 == 399:
            record["attachment"] = lambda: self.x[i].flip(0)
        return record


torch.manual_seed(0)
loader = DataLoader(Records(), batch_size=16, collate_fn=list)
model = nn.Sequential(nn.Linear(40, 160), nn.ReLU(), nn.Linear(160, 40))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(7):
    for records in loader:
        rows = [record["x"] for record in records]
        rows += [record["attachment"]() for record in records if "attachment" in record]
        x = torch.stack(rows)
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
