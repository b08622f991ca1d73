"""Steps without torch that note when each of them began and ended, and what else is asked for.

python turns.py FILE [crash|hang|end|busy]
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

import gpuadvisor

FAULT_STEP = 40
"""Step of the fault, by which turns are taken: warming up takes 5 steps of 5 ms."""


def work(seconds):
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        pass
    return began, time.perf_counter()


def fault(kind):
    if kind == "crash":
        raise ValueError("no")
    if kind == "kill":
        os.kill(os.getpid(), 9)
    if kind == "hang":
        time.sleep(600)
    if kind == "end":
        sys.exit(0)


def main():
    path, kind = (*sys.argv[1:], "")[:2]
    if kind == "busy":
        threading.Thread(target=work, args=(600,), daemon=True).start()
    number = 0
    with Path(path).open("w", encoding="utf-8") as file:
        while True:
            began, ended = work(0.002)
            file.write(json.dumps([began, ended]) + "\n")
            file.flush()
            gpuadvisor.step()
            number += 1
            if number == FAULT_STEP:
                fault(kind)


if __name__ == "__main__":
    main()
