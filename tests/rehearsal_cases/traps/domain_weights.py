"""A language model on three sources in one epoch; their shares follow the losses each 1,000 steps.

expected: not faster with dataloader_workers
danger: dataloader_workers. Workers have a copy of the data set from the start of the only epoch.
observed: steps 1,001 to 2,000 read 5260, 5467 and 5273 texts of the sources instead of 0, 9 and
15991.
"""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Mixture(Dataset):
    def __init__(self):
        self.share = torch.ones(3) / 3
        self.next_word = torch.randint(0, 200, (3, 200), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return 48000

    def __getitem__(self, i):
        time.sleep(0.003)
        g = torch.Generator().manual_seed(i)
        source = torch.multinomial(self.share, 1, generator=g).item()
        words = [torch.randint(0, 200, (1,), generator=g).item()]
        for _ in range(12):
            easy = torch.rand(1, generator=g) < (0.95, 0.6, 0.2)[source]
            words.append(
                self.next_word[source, words[-1]].item()
                if easy
                else torch.randint(0, 200, (1,), generator=g).item()
            )
        return torch.tensor([source] + words)


torch.manual_seed(0)
data = Mixture()
model = nn.Sequential(nn.Embedding(200, 64), nn.Linear(64, 200))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
losses, counts = torch.zeros(3), torch.zeros(3)
for step, batch in enumerate(DataLoader(data, batch_size=16)):
    source, words = batch[:, 0], batch[:, 1:]
    each = F.cross_entropy(
        model(words[:, :-1]).transpose(1, 2), words[:, 1:], reduction="none"
    ).mean(1)
    optimizer.zero_grad()
    each.mean().backward()
    optimizer.step()
    losses.index_add_(0, source, each.detach())
    counts.index_add_(0, source, torch.ones(len(source)))
    if step % 1000 == 999:
        data.share = torch.softmax(4 * losses / counts.clamp(min=1), 0)
        print(f"step {step + 1} loss {each.mean():.3f} read {counts.int().tolist()}")
        losses.zero_(), counts.zero_()
torch.save(model.state_dict(), "lm.pt")
