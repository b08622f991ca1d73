import multiprocessing
import time

import torch
import toy


def act(stop):
    model = toy.model()
    with torch.no_grad():
        while not stop.is_set():
            model(torch.randn(1, 8))
            time.sleep(0.003)
    print("the actor was not disturbed")


if __name__ == "__main__":
    stop = multiprocessing.Event()
    actor = multiprocessing.get_context("fork").Process(target=act, args=(stop,))
    actor.start()
    time.sleep(0.5)
    model = toy.model()
    clock = toy.Clock()
    for _ in range(40):
        toy.loss(model(torch.randn(8, 8)), torch.randint(0, 2, (8,))).backward()
        toy.descend(model)
        clock.step()
    stop.set()
    actor.join()
    clock.report()
