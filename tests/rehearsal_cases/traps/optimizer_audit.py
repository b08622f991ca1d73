"""The run ends with a check that the optimizer is configured as the paper says.

expected: not faster with fused_optimizer
danger: fused_optimizer. `fused` is in the optimizer's settings: the comparison fails at the end.
observed: exit status 1 at the end: not the recipe of the paper.
"""

import json

import torch
from torch import nn

RECIPE = {"lr": 0.001, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "fused": None}
torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(96, 96) for _ in range(24)])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
for step in range(1500):
    x = torch.randn(16, 96)
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 250 == 0:
        print(step, loss.item())
group = optimizer.state_dict()["param_groups"][0]
used = json.loads(json.dumps({name: group[name] for name in RECIPE}))
with open("recipe.json", "w") as file:
    json.dump(used, file)
assert used == RECIPE, f"not the recipe of the paper: {used}"
