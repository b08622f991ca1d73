"""Checkpoints are written by a process of their own; before the next one its end is waited for.

expected: not faster with dataloader_workers
danger: dataloader_workers. `multiprocessing.active_children()` names the loader's workers, too:
they are waited for and then ended, and the loader fails, at step 150.
observed: the loader failed at step 150, ten seconds after it had been reached.
"""

import multiprocessing
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    def __len__(self):
        return 960

    def __getitem__(self, i):
        time.sleep(0.001)
        draw = torch.Generator().manual_seed(i)
        x = torch.randn(128, generator=draw)
        return x, (x[:16].sum() > 0).float()


def wait_for_writer():
    for child in multiprocessing.active_children():
        child.join(5)
        if child.is_alive():
            print("the writer hangs", flush=True)
            child.terminate()


def write(state, path):
    wait_for_writer()
    multiprocessing.Process(target=torch.save, args=(state, path)).start()


torch.manual_seed(0)
loader = DataLoader(Signals(), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
step = 0
for epoch in range(6):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        step += 1
        if step % 150 == 0:
            write({k: v.clone() for k, v in model.state_dict().items()}, f"step{step}.pt")
    print(f"epoch {epoch}: {total / len(loader):.4f}", flush=True)
wait_for_writer()
