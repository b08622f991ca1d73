"""Semi-supervised node classification with a graph convolutional network, full batch."""

import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

tiny = os.environ.get("TINY") is not None
parser = argparse.ArgumentParser()
parser.add_argument("--nodes", type=int, default=64 if tiny else 20000)
parser.add_argument("--degree", type=int, default=4 if tiny else 12)
parser.add_argument("--features", type=int, default=16 if tiny else 256)
parser.add_argument("--hidden", type=int, default=16 if tiny else 512)
parser.add_argument("--epochs", type=int, default=int(os.environ.get("STEPS", 1500)))
parser.add_argument("--dropout", type=float, default=0.0)
args = parser.parse_args()
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


class GraphConvolution(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(fan_in, fan_out))
        self.bias = nn.Parameter(torch.zeros(fan_out))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adj):
        support = torch.mm(x, self.weight)
        return torch.spmm(adj, support) + self.bias


class GCN(nn.Module):
    def __init__(self, fan_in, hidden, classes, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(fan_in, hidden)
        self.gc2 = GraphConvolution(hidden, hidden)
        self.gc3 = GraphConvolution(hidden, classes)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.dropout(F.relu(self.gc1(x, adj)), self.dropout, self.training)
        x = F.dropout(F.relu(self.gc2(x, adj)), self.dropout, self.training)
        return F.log_softmax(self.gc3(x, adj), dim=1)


def load_data():
    src = torch.randint(args.nodes, (args.nodes * args.degree // 2,))
    dst = torch.randint(args.nodes, src.shape)
    src, dst = src.to(device), dst.to(device)
    adj = torch.zeros(args.nodes, args.nodes, device=device)
    adj[src, dst] = 1
    adj[dst, src] = 1
    adj.fill_diagonal_(1)
    scale = adj.sum(1).rsqrt()
    adj = scale[:, None] * adj * scale[None, :]
    x = torch.rand(args.nodes, args.features)
    y = torch.randint(10, (args.nodes,))
    return adj, x.to(device), y.to(device)


torch.manual_seed(42)
torch.set_float32_matmul_precision("high")
adj, x, y = load_data()
labelled = args.nodes // 4
model = GCN(args.features, args.hidden, 10, args.dropout).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(args.epochs):
    model.train()
    optimizer.zero_grad()
    output = model(x, adj)
    loss = F.nll_loss(output[:labelled], y[:labelled])
    loss.backward()
    optimizer.step()
    if epoch % 100 == 0:
        accuracy = (output[labelled:].argmax(1) == y[labelled:]).float().mean()
        print(f"Epoch {epoch:04d} loss {loss.item():.4f} acc {accuracy.item():.4f}")
print("final", loss.item())
