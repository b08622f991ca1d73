import os

import torch
import torch.nn as nn

# Neural collaborative filtering on ratings
TINY = os.environ.get("TINY", "0") != "0"
N_USERS, N_ITEMS, N_RATINGS, BATCH = (
    (50, 20, 400, 32) if TINY else (30_000, 6_000, 1_600_000, 4_096)
)
HIDDEN = 32 if TINY else 2048
device = "cuda" if torch.cuda.is_available() else "cpu"


class NCF(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.user = nn.Embedding(N_USERS, dim)
        self.item = nn.Embedding(N_ITEMS, dim)
        self.mlp = nn.Sequential(
            nn.Linear(2 * dim, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN // 2),
            nn.ReLU(),
            nn.Linear(HIDDEN // 2, 1),
        )

    def forward(self, u, i):
        return self.mlp(torch.cat([self.user(u), self.item(i)], dim=1)).squeeze(1)


def load():
    g = torch.Generator().manual_seed(5)
    users = torch.randint(N_USERS, (N_RATINGS,), generator=g)
    items = torch.randint(N_ITEMS, (N_RATINGS,), generator=g)
    stars = torch.randint(1, 6, (N_RATINGS,), generator=g).float()
    return users, items, stars


def epochs(ratings):
    """Batches of shuffled ratings on the device, for ever."""
    shuffle = torch.Generator().manual_seed(6)
    user, item, stars = (column.to(device) for column in ratings)
    while True:
        order = torch.randperm(N_RATINGS, generator=shuffle).to(device)
        for start in range(0, N_RATINGS - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            yield user[rows], item[rows], stars[rows]


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = NCF().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    mse = nn.MSELoss()
    total = torch.zeros((), device=device)
    for step, (user, item, stars) in enumerate(epochs(load())):
        if step == int(os.environ.get("STEPS", 600)):
            break
        optimizer.zero_grad()
        loss = mse(model(user, item), stars)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 100 == 99:
            print(f"{step + 1:5d}  mse {total.item() / 100:.4f}")
            total.zero_()
    print("final", loss.item())


main()
