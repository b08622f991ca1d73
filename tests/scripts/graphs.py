import random

import torch
import toy
from torch.utils.data import DataLoader


class Batch:
    """Like PyTorch Geometric's: nodes of several graphs in one tensor."""

    def __init__(self, graphs):
        self.x, self.num_graphs = torch.cat(graphs), len(graphs)
        self.y = torch.randint(0, 2, (len(self.x),))


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = toy.model()

    def forward(self, batch):
        return self.layers(batch.x)


graphs = [torch.randn(random.randint(2, 20), 8) for _ in range(320)]
model = Encoder()
clock = toy.Clock()
for batch in DataLoader(graphs, batch_size=8, collate_fn=Batch):
    toy.loss(model(batch), batch.y).backward()
    toy.descend(model)
    clock.step()
clock.report()
