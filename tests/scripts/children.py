import multiprocessing
import sys

import torch
import toy


def train(rank):
    torch.set_num_threads(1)
    model = toy.model()
    clock = toy.Clock()
    for _ in range(40):
        toy.loss(model(torch.randn(8, 8)), torch.randint(0, 2, (8,))).backward()
        toy.descend(model)
        clock.step()
    clock.report()


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        torch.multiprocessing.spawn(train, nprocs=1)
    else:
        child = multiprocessing.get_context("fork").Process(target=train, args=(0,))
        child.start()
        child.join()
