"""Classes of all rows go to an SQLite database.

expected: right with batch_size
observed: the same results from whole runs.
"""

import sqlite3
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(1600, 40)
model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 5)).eval()
base = sqlite3.connect("results.db")
base.execute("create table result (id integer primary key, class integer, p real)")
with torch.no_grad():
    for ids, batch in DataLoader(TensorDataset(torch.arange(1600), x), batch_size=8):
        p, c = model(batch).softmax(1).max(1)
        base.executemany(
            "insert into result values (?, ?, ?)", zip(ids.tolist(), c.tolist(), p.tolist())
        )
        time.sleep(0.01)
base.commit()
print(base.execute("select count(*), sum(class) from result").fetchone())
base.close()
