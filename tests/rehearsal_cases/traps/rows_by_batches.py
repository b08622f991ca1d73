"""Accuracy under shifts of the input, as right rows over `len(loader) * loader.batch_size`.

expected: not faster with batch_size
danger: batch_size. The last batch is not full, which the product does not know: 1,100 rows are 7
batches of 160 (1,120), but 4 of 320 (1,280). The accuracy falls by an eighth.
observed: an accuracy of 0.6930 instead of 0.7920 at the largest shift.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(1100, 64)
layers = [nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2)]
model = nn.Sequential(*layers).eval()
with torch.no_grad():
    y = model(x).argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=160)
with torch.no_grad():
    for shift in range(12):
        right = 0
        for inputs, labels in loader:
            right += (model(inputs + 0.05 * shift).argmax(1) == labels).sum().item()
        print(f"shift {shift}: accuracy {right / (len(loader) * loader.batch_size):.4f}")
