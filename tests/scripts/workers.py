import toy
from torch.utils.data import DataLoader


class Loader(DataLoader):
    """A subclass, as other libraries have them."""


def main():
    model = toy.model()
    clock = toy.Clock()
    for method in ("fork", "spawn"):
        loader = Loader(toy.data(640), batch_size=16, num_workers=1, multiprocessing_context=method)
        for x, y in loader:
            toy.loss(model(x), y).backward()
            toy.descend(model)
            clock.step()
    clock.report()


if __name__ == "__main__":
    main()
