"""What `gpuadvisor gate init` writes: the workflow of a repository, for GitHub or GitLab."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

INSTALLING_MIN = 15
"""Time of a job besides the gate: torch is gigabytes, and a runner's network is slow at times."""


@dataclass(frozen=True)
class Benchmark:
    """What a gate shall measure."""

    folder: str
    """Where it is started, from the repository's root; empty for that."""
    script: str
    args: tuple[str, ...]
    is_module: bool
    links: tuple[str, ...]
    tolerance: float
    limit: float
    """In percent, as `tolerance`."""


@dataclass(frozen=True)
class Job:
    """Where and how it is measured."""

    gpuadvisor: str
    """What pip installs: `gpuadvisor==0.1.0`, or a URL."""
    requirements: str
    """Arguments of pip for what the script needs; empty where nobody knows."""
    on_gpu: bool
    most_s: float
    """Time of a gate that stays inconclusive."""

    @property
    def minutes(self) -> int:
        """Time after which the job is ended: a runner may be half as fast as this machine."""
        return INSTALLING_MIN + math.ceil(2 * self.most_s / 60)


def gate_line(benchmark: Benchmark, base: str, outputs: str) -> str:
    """Return the command of a job, whose base is a word for the shell."""
    words = ["-m", benchmark.script] if benchmark.is_module else [benchmark.script]
    words += ["--", *benchmark.args] if benchmark.args else []
    enter = f"cd {shlex.quote(benchmark.folder)} && " if benchmark.folder else ""
    own = [f"--tolerance {benchmark.tolerance:g}", f"--limit {benchmark.limit:g}"]
    own += [f"--link {shlex.quote(link)}" for link in benchmark.links]
    return f"{enter}gpuadvisor gate --base {base} {' '.join(own)} {outputs} {shlex.join(words)}"


def github(benchmark: Benchmark, job: Job) -> str:
    """Return a workflow of GitHub Actions."""
    labels = "[self-hosted, linux, gpu]" if job.on_gpu else "ubuntu-latest"
    line = gate_line(
        benchmark, '"origin/$TARGET"', "--output json --output junit --output markdown"
    )
    return f"""\
# Written by `gpuadvisor gate init`: fails a pull request that makes {benchmark.script} slower.
# Docs: docs/gate.md of gpuadvisor, section "In CI".
name: gpuadvisor gate

on:
  pull_request:

permissions:
  contents: read

concurrency:
  group: ${{{{ github.workflow }}}}-${{{{ github.ref }}}}
  cancel-in-progress: true

jobs:
  gate:
    runs-on: {labels}
    timeout-minutes: {job.minutes}
    env:
      TARGET: ${{{{ github.base_ref }}}}
      GPUADVISOR: {json.dumps(job.gpuadvisor)}
    steps:
      - uses: actions/checkout@v4
        with:
          fetch-depth: 0  # the commit where the branch left its target
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - name: Install
        run: python -m pip install "$GPUADVISOR"{_also(job.requirements)}
      - name: Compare with the target branch; what is inconclusive is a warning
        run: |
          {line} || [ $? -eq 6 ]
      - uses: actions/upload-artifact@v4
        if: ${{{{ always() }}}}
        with:
          name: gpuadvisor-gate
          path: {json.dumps(_files(benchmark))}
          if-no-files-found: ignore
"""


def gitlab(benchmark: Benchmark, job: Job) -> str:
    """Return a job of GitLab CI."""
    tags = "\n  tags: [gpu]" if job.on_gpu else ""
    files = {"junit": "gpuadvisor-gate.xml", "gitlab": "gpuadvisor-gate.metrics.txt"}
    outputs = " ".join(f"--output {name}={file}" for name, file in files.items())
    line = gate_line(benchmark, '"$CI_MERGE_REQUEST_DIFF_BASE_SHA"', f"{outputs} --output json")
    return f"""\
# Written by `gpuadvisor gate init`: fails a merge request that makes {benchmark.script} slower.
# Docs: docs/gate.md of gpuadvisor, section "In CI".
gpuadvisor-gate:
  stage: test
  image: python:3.12{tags}
  timeout: {job.minutes} minutes
  rules:
    - if: $CI_PIPELINE_SOURCE == "merge_request_event"
  variables:
    GIT_DEPTH: "0"  # the commit where the branch left its target
    GPUADVISOR: {json.dumps(job.gpuadvisor)}
  script:
    - python -m pip install "$GPUADVISOR"{_also(job.requirements)}
    - |
      {line}
  allow_failure:
    exit_codes: [6]  # inconclusive: a warning
  artifacts:
    when: always
    paths: [{json.dumps(_files(benchmark))}]
    reports:
      junit: {json.dumps(str(PurePosixPath(benchmark.folder, files["junit"])))}
      metrics: {json.dumps(str(PurePosixPath(benchmark.folder, files["gitlab"])))}
"""


def _files(benchmark: Benchmark) -> str:
    return str(PurePosixPath(benchmark.folder, "gpuadvisor-gate.*"))


def _also(requirements: str) -> str:
    return f" {requirements}" if requirements else ""
