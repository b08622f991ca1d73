import copy
import io
import pickle

import torch
import toy


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = toy.model()

    def forward(self, x):
        return self.layers(x)


def saved(model):
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


if __name__ == "__main__":
    model = Net()
    average = copy.deepcopy(model)
    clock = toy.Clock()
    x, y = torch.randn(8, 8), torch.randint(0, 2, (8,))
    for number in range(40):
        toy.loss(model(x), y).backward()
        toy.descend(model)
        if number % 10 == 5:
            average = copy.deepcopy(model)
            for other in (average, saved(model), pickle.loads(pickle.dumps(model))):
                assert torch.equal(other(x), model(x))
            with torch.no_grad():
                average.layers[0].weight.zero_()
            assert not torch.equal(average(x), model(x))
        clock.step()
    clock.report()
