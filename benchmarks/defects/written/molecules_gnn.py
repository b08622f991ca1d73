"""Message passing over batches of molecule-like graphs, plain scatter, mean readout."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = "TINY" in os.environ
STEPS = int(os.environ.get("STEPS", 2000))
N_GRAPHS, DIM, DEPTH = (6, 16, 2) if TINY else (256, 256, 5)
NODES = 24
device = "cuda" if torch.cuda.is_available() else "cpu"


class Batch:
    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        sizes = torch.randint(10, NODES + 1, (N_GRAPHS,), generator=g)
        n = int(sizes.sum())
        self.graph = torch.repeat_interleave(torch.arange(N_GRAPHS), sizes).to(device)
        starts = torch.cumsum(sizes, 0) - sizes
        first = starts.repeat_interleave(sizes).repeat(3)
        span = sizes.repeat_interleave(sizes).repeat(3)
        src = torch.arange(n).repeat(3)
        dst = first + (torch.rand(len(src), generator=g) * span).long()
        self.src = torch.cat([src, dst]).to(device)
        self.dst = torch.cat([dst, src]).to(device)
        self.x = torch.randn(n, DIM, generator=g).to(device)
        self.y = torch.randn(N_GRAPHS, 1, generator=g).to(device)


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.msg = nn.Sequential(nn.Linear(2 * DIM, DIM), nn.ReLU(), nn.Linear(DIM, DIM))
        self.upd = nn.GRUCell(DIM, DIM)

    def forward(self, x, src, dst):
        m = self.msg(torch.cat([x[src], x[dst]], dim=1))
        agg = torch.zeros_like(x).index_add_(0, dst, m)
        return self.upd(agg, x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(Conv() for _ in range(DEPTH))
        self.out = nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, 1))

    def readout(self, x, graph):
        pooled = []
        for i in range(N_GRAPHS):
            pooled.append(x[graph == i].mean(dim=0))
        return torch.stack(pooled)

    def forward(self, b):
        x = b.x
        for conv in self.convs:
            x = conv(x, b.src, b.dst)
        return self.out(self.readout(x, b.graph))


def train():
    torch.manual_seed(3)
    torch.set_float32_matmul_precision("high")
    data = [Batch(i) for i in range(4 if TINY else 40)]
    net = Net().to(device)
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for step in range(STEPS):
        b = data[step % len(data)]
        loss = F.mse_loss(net(b), b.y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 250 == 0:
            print(step, float(loss))
    print("final", float(loss))


train()
