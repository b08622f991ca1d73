"""Several GPUs are driven by torch.nn.DataParallel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.device_work import Work
from gpuadvisor.rules.requirements import KERNELS, OPERATORS, RANGES, either
from gpuadvisor.rules.rule import Rule, RuleResult

NAME = "DataParallel.forward"
"""The range that torch.nn.DataParallel marks itself (torch/nn/parallel/data_parallel.py)."""
TABLES = ("operators", "ranges")

RULE = Rule(
    Category.COMMUNICATION,
    needs=(KERNELS, either((RANGES,), (OPERATORS,))),
    hides=("exposed_communication",),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find its forward pass in a profile in which more than one GPU computed."""
    facts = evidence.known_facts
    number = next((at for at, text in enumerate(facts.profile.header.texts) if text == NAME), None)
    if number is None:
        return
    calls = sum(
        int((facts.profile.columns(table, ("name",))["name"] == number).sum()) for table in TABLES
    )
    gpus = len(np.unique(facts.work.device[facts.work.kind == Work.COMPUTE]))
    if not calls or gpus < 2:
        return
    yield RuleResult(
        f"torch.nn.DataParallel drives {gpus} GPUs from one process: it copies the model to each"
        " of them and gathers the outputs in every step",
        (Figure("DataParallel.forward", calls, "", 1), Figure("gpus_that_compute", gpus, "", 2)),
        "Use torch.nn.parallel.DistributedDataParallel with a process for each GPU"
        " (`torchrun --nproc-per-node=N`): the model stays on its GPU, only gradients travel, and"
        " they do so while the backward pass goes on.",
        severity=Severity.WARNING,
    )
