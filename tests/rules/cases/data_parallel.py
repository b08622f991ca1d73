"""torch.nn.DataParallel on two GPUs, on one, and other modules."""

from tests.profiles import Made
from tests.rules.building import timeline


def step(gpus, name="DataParallel.forward", is_operator=False):
    made = Made()
    (made.operator if is_operator else made.range)(name, (0, 500))
    for gpu in range(gpus):
        made.launched("gemm", call=(10 + gpu, 5), runs=(20, 400), device=gpu)
    return timeline(made)


FIRES = {
    "two GPUs": lambda: step(2),
    "an older trace, which has it as an operator": lambda: step(4, is_operator=True),
}
SILENT = {
    "one GPU: it calls the module as it is": lambda: step(1),
    "DDP": lambda: step(2, "DistributedDataParallel.forward"),
}
