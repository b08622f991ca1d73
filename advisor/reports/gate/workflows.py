"""What `gpuadvisor gate init` writes: the configuration, and the workflow for GitHub or GitLab."""

from __future__ import annotations

import json
import math
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from gpuadvisor.domain.gate import Benchmark
from gpuadvisor.errors import UsageError

_HEADER = re.compile(r"\s*\[\[?\s*(?P<name>[^\]]+?)\s*\]\]?\s*(#.*)?")
"""The line in TOML that begins a table, `[name]` or `[[name]]`."""
INSTALLING_MIN = 15
"""Time of a job besides the gate: torch is gigabytes, and a runner's network is slow at times."""


@dataclass(frozen=True)
class Job:
    """Where and how a benchmark is measured in CI."""

    folder: str
    """Folder in which the gate is started, from the repository's root; empty for that."""
    gpuadvisor: str
    """What pip installs: `gpuadvisor==0.1.0`, or a URL."""
    requirements: str
    """Arguments of pip for what the script needs; empty where nobody knows."""
    on_gpu: bool
    most_s: float
    """Time that a gate takes which stays inconclusive."""
    assumed: str = ""
    """A sentence: what has to hold so that pip gets that."""
    python_path: tuple[str, ...] = ()
    """Folders of the repository, from its root, in which Python looks for modules."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further variables that the script was measured with."""

    @property
    def minutes(self) -> int:
        """Time after which the job is ended: a runner may be half as fast as this machine."""
        return INSTALLING_MIN + math.ceil(2 * self.most_s / 60)


def configuration(benchmark: Benchmark, table: str) -> str:
    """Return the configuration as TOML, below a table `tool.gpuadvisor.gate` or `gate`."""
    values = {
        "name": benchmark.name,
        "module" if benchmark.is_module else "script": benchmark.script,
        "args": list(benchmark.args),
        **benchmark.values,
    }
    # What JSON in ASCII writes for a text, a number or an array of texts means the same in TOML.
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if value != []]
    return "\n".join([f"[[{table}.benchmark]]", *lines]) + "\n"


def with_configuration(file: str, added: str, table: str) -> str:
    """Return a TOML file with this configuration in place of the table, if it had one.

    UsageError where it holds the table in a way that cannot be replaced.
    """
    before = tomllib.loads(file)
    kept, is_ours = [], False
    for line in file.splitlines(keepends=True):
        if found := _HEADER.fullmatch(line.rstrip("\r\n")):
            is_ours = f"{found['name']}.".startswith(f"{table}.")
        if not is_ours:
            kept.append(line)
    text = "".join(kept).rstrip()
    text = f"{text}\n\n{added}" if text else added
    keys = table.split(".")
    try:
        after = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        after = {}
    if _without(after, keys) != _without(before, keys) or not after:
        raise UsageError(
            f"[{table}] stands in the file in a way that cannot be replaced: take it out, or put "
            "in what --print shows"
        )
    return text


def _without(value: Any, keys: Sequence[str]) -> Any:
    """Return what a TOML file holds besides a table, and tables that hold nothing else."""
    key, *below = keys
    if not isinstance(value, dict) or key not in value:
        return value
    rest = {name: each for name, each in value.items() if name != key}
    inner = _without(value[key], below) if below else {}
    return {**rest, key: inner} if inner else rest


def _gate_lines(job: Job, top: str, base: str, outputs: str, ending: str, indent: int) -> str:
    """Return the commands of a job, as lines that begin at `indent` but for the first one.

    `top` is the variable with the repository's folder, and `base` a word for the shell.
    """
    lines = [f"export {name}={shlex.quote(text)}" for name, text in job.environment.items()]
    if job.python_path:
        names = ("" if each == "." else f"/{shlex.quote(each)}" for each in job.python_path)
        folders = [f'"${top}"{name}' for name in names]
        lines.append(f"export PYTHONPATH={':'.join(folders)}")
    enter = f"cd {shlex.quote(job.folder)} && " if job.folder else ""
    lines.append(f"{enter}gpuadvisor gate --base {base} {outputs}{ending}")
    return ("\n" + " " * indent).join(lines)


def github(benchmark: Benchmark, job: Job) -> str:
    """Return a workflow of GitHub Actions."""
    labels = "[self-hosted, linux, gpu]" if job.on_gpu else "ubuntu-latest"
    outputs, warned = "--output json --output junit --output markdown", " || [ $? -eq 6 ]"
    lines = _gate_lines(job, "GITHUB_WORKSPACE", '"origin/$TARGET"', outputs, warned, 10)
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
      # Assumed: {job.assumed}.
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
          {lines}
      - uses: actions/upload-artifact@v4
        if: ${{{{ always() }}}}
        with:
          name: gpuadvisor-gate
          path: {json.dumps(_files(job))}
          if-no-files-found: ignore
"""


def gitlab(benchmark: Benchmark, job: Job) -> str:
    """Return a job of GitLab CI."""
    tags = "\n  tags: [gpu]" if job.on_gpu else ""
    files = {"junit": "gpuadvisor-gate.xml", "gitlab": "gpuadvisor-gate.metrics.txt"}
    outputs = " ".join(f"--output {name}={file}" for name, file in files.items())
    base, outputs = '"$CI_MERGE_REQUEST_DIFF_BASE_SHA"', f"{outputs} --output json"
    lines = _gate_lines(job, "CI_PROJECT_DIR", base, outputs, "", 6)
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
    # Assumed: {job.assumed}.
    GPUADVISOR: {json.dumps(job.gpuadvisor)}
  script:
    - python -m pip install "$GPUADVISOR"{_also(job.requirements)}
    - |
      {lines}
  allow_failure:
    exit_codes: [6]  # inconclusive: a warning
  artifacts:
    when: always
    paths: [{json.dumps(_files(job))}]
    reports:
      junit: {json.dumps(str(PurePosixPath(job.folder, files["junit"])))}
      metrics: {json.dumps(str(PurePosixPath(job.folder, files["gitlab"])))}
"""


def _files(job: Job) -> str:
    return str(PurePosixPath(job.folder, "gpuadvisor-gate.*"))


def _also(requirements: str) -> str:
    return f" {requirements}" if requirements else ""
