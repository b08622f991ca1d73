"""After training, influence by per-sample gradients with `torch.func`.

expected: not faster with channels_last
danger: channels_last. Its conversion of the input fails inside `vmap`, at the script's end.
observed: exit status 1 after the last epoch: NYI: Tensor.clone(memory_format) inside vmap.
"""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 32, 3),
    nn.ReLU(),
    nn.Conv2d(32, 48, 3, stride=2),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(48 * 36, 3),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
x, y = torch.randn(600, 3, 16, 16), torch.randint(0, 3, (600,))
for epoch in range(5):
    for first in range(0, 600, 20):
        loss = nn.functional.cross_entropy(net(x[first : first + 20]), y[first : first + 20])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())

parameters = {name: p.detach() for name, p in net.named_parameters()}


def one_loss(parameters, image, label):
    return nn.functional.cross_entropy(
        functional_call(net, parameters, (image[None],)), label[None]
    )


gradients = vmap(grad(one_loss), in_dims=(None, 0, 0))(parameters, x[:64], y[:64])
influence = sum(g.flatten(1).pow(2).sum(1) for g in gradients.values()).sqrt()
print("most influential", influence.topk(5).indices.tolist())
