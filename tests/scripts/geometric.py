import random

import torch
import toy
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv

graphs = []
for _ in range(320):
    nodes = random.randint(3, 20)
    edges = torch.randint(0, nodes, (2, 3 * nodes))
    graphs.append(Data(x=torch.randn(nodes, 8), edge_index=edges, y=torch.randint(0, 2, (nodes,))))
model = GCNConv(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clock = toy.Clock()
for batch in DataLoader(graphs, batch_size=8):
    optimizer.zero_grad()
    toy.loss(model(batch.x, batch.edge_index), batch.y).backward()
    optimizer.step()
    clock.step()
clock.report()
