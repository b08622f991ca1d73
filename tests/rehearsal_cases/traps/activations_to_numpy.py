"""Activations of a hidden layer are kept by a hook and saved with numpy at the end.

expected: not faster with bf16_autocast
danger: bf16_autocast. numpy has no bfloat16: the script fails at its end.
observed: exit status 1 after the last epoch: Got unsupported ScalarType BFloat16.
"""

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
model.append(nn.Linear(1024, 20))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(1024, 512)
y = x[:, :20].argmax(1)
for epoch in range(6):
    for i in range(0, 1024, 64):
        loss = nn.functional.cross_entropy(model(x[i : i + 64]), y[i : i + 64])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())

kept = []
hook = model[2].register_forward_hook(lambda module, inputs, output: kept.append(output.detach()))
with torch.no_grad():
    for i in range(0, 1024, 64):
        model(x[i : i + 64])
hook.remove()
np.save("activations.npy", np.concatenate([part.numpy() for part in kept]))
print("saved", len(kept))
