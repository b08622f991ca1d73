"""What `gpuadvisor watch` costs beside nvitop, both on a terminal: start, CPU, memory, bytes, end.

    python -m venv /tmp/nvitop && /tmp/nvitop/bin/pip install nvitop
    python benchmarks/watch_cost.py --nvitop /tmp/nvitop/bin/nvitop [--rounds 5] [--seconds 20]

Both run in turns on the tests' fake driver with 8 GPUs and 64 processes, each on a terminal of
120x40 of its own. Times to the first values and to the end are medians; CPU time is that of the
program and its sampler, as the kernel counts it, so that a busy machine changes it little; memory
is the proportional set size of both (PSS). A `q` is typed when it has just begun, which says when
keys are heard (nvitop drops it). The driver then hangs, and both are told to quit.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

GPUS = 8
PROCESSES = 64
LINES, COLUMNS = 40, 120
ROOT = Path(__file__).parents[1]
FAKE = ROOT / "tests" / "fake_nvml" / "fake_nvml.c"
SETTLE_S = 8.0
"""After the first values, until a program is in its stride."""
HANG_S = 4.0
"""For a program to run into a driver that hangs."""
LONGEST_S = 10.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
VALUES = (b"700/700", b"700W")
"""What GPU 0 draws, as one of the two shows it: values are on the screen."""


@dataclass
class Measured:
    """What was measured of one program, an entry a round."""

    start_s: list[float] = field(default_factory=list)
    start_cpu_s: list[float] = field(default_factory=list)
    cpu_pct: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    still_bytes_per_s: list[float] = field(default_factory=list)
    """While no value of the driver changes."""
    first_key_s: list[float] = field(default_factory=list)
    """From the start to the end by a `q` that is typed at once: when keys are heard."""
    quit_s: list[float] = field(default_factory=list)
    hung_quit_s: list[float] = field(default_factory=list)


class Program:
    """A program on a terminal of its own."""

    def __init__(self, command: Sequence[str], environ: dict[str, str]) -> None:
        self.output = b""
        self.began_s = time.monotonic()
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            command, env=environ, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)

    def read(self, for_s: float) -> int:
        """Read what is written in that time; return how many bytes."""
        count, until = 0, time.monotonic() + for_s
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self._master], [], [], left)
            if not ready:
                break
            try:
                got = os.read(self._master, 1 << 16)
            except OSError:  # it has ended
                break
            count += len(got)
            self.output += got
        return count

    def until_values(self) -> float:
        """Return after how many seconds values were on the screen."""
        while not any(value in self.output for value in VALUES):
            self.read(0.005)
            if time.monotonic() - self.began_s > LONGEST_S:
                raise SystemExit(f"no values: {self.output[-2000:]!r}")
        return time.monotonic() - self.began_s

    def quit(self) -> float:
        """Press q; return the seconds until it has ended, LONGEST_S where it had to be killed."""
        began_s = time.monotonic()
        os.write(self._master, b"q")
        while self.process.poll() is None and time.monotonic() - began_s < LONGEST_S:
            self.read(0.005)
        took_s = time.monotonic() - began_s
        if self.process.poll() is None:
            for pid in self.family():
                os.kill(pid, 9)
        self.process.wait()
        os.close(self._master)
        return took_s

    def family(self) -> list[int]:
        """Return the program and what it has started."""
        found = [self.process.pid]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in task.read_text().split()]
        return found

    def cpu_s(self) -> float:
        ticks = 0
        for pid in self.family():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / TICKS_PER_S

    def memory_mb(self) -> float:
        total_kb = 0
        for pid in self.family():
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total_kb += int(line.split()[1])
        return total_kb / 1000


def main() -> None:
    """Measure in turns, and print a line for each program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nvitop", type=Path, help="its program; without it we run alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="for CPU time and bytes")
    chosen = parser.parse_args()
    commands = {"gpuadvisor watch": [sys.executable, "-m", "gpuadvisor", "watch"]}
    if chosen.nvitop:
        commands["nvitop"] = [str(chosen.nvitop)]
    found = {name: Measured() for name in commands}
    with tempfile.TemporaryDirectory() as folder, _processes() as pids:
        environ = _scene(Path(folder), pids)
        for _ in range(chosen.rounds):
            for name, command in commands.items():
                _measure(found[name], command, environ, chosen.seconds)
                print(".", end="", flush=True)
    print()
    for name, measured in found.items():
        print(f"{name}:")
        for what, values in vars(measured).items():
            middle = statistics.median(values)
            print(f"  {what:18} {middle:9.3f}   ({min(values):.3f} to {max(values):.3f})")


def _measure(
    measured: Measured, command: Sequence[str], environ: dict[str, str], seconds: float
) -> None:
    control = Path(environ["FAKE_NVML_CONTROL"])
    whole = control.read_text()
    program = Program(command, environ)
    measured.start_s.append(program.until_values())
    measured.start_cpu_s.append(program.cpu_s())
    program.read(SETTLE_S)
    began_s, cpu_s = time.monotonic(), program.cpu_s()
    count = program.read(seconds)
    passed_s = time.monotonic() - began_s
    measured.cpu_pct.append(100 * (program.cpu_s() - cpu_s) / passed_s)
    measured.still_bytes_per_s.append(count / passed_s)
    measured.memory_mb.append(program.memory_mb())
    measured.quit_s.append(program.quit())
    measured.first_key_s.append(Program(command, environ).quit())
    program = Program(command, environ)
    program.until_values()
    control.write_text(whole + "HANG=nvmlDeviceGetPowerUsage\n")
    program.read(HANG_S)
    measured.hung_quit_s.append(program.quit())
    control.write_text(whole)


@contextmanager
def _processes() -> Iterator[list[int]]:
    """Have as many processes as are shown, which do nothing."""
    started = [subprocess.Popen(["sleep", "100000"]) for _ in range(PROCESSES)]
    try:
        yield [each.pid for each in started]
    finally:
        for each in started:
            each.kill()
            each.wait()


def _scene(folder: Path, pids: Sequence[int]) -> dict[str, str]:
    """Build the fake driver, and return the environment in which programs see it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("the fake driver needs a C compiler")
    flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-shared", "-fPIC", "-pthread"]
    subprocess.run([compiler, *flags, "-o", folder / "libnvidia-ml.so.1", FAKE], check=True)
    control = folder / "control"
    placed = ",".join(f"{pid}:1000@{place % GPUS}" for place, pid in enumerate(pids))
    busy = ",".join(f"{pid}={place}" for place, pid in enumerate(pids))
    control.write_text(
        f"MODELS={','.join(['h100'] * GPUS)}\nLOAD=busy\nPIDS={placed}\n"
        f"PROCESS_UTILIZATION={busy}\n"
    )
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "FAKE_"))}
    return {
        **inherited,
        "LD_LIBRARY_PATH": str(folder),
        "FAKE_NVML_CONTROL": str(control),
        "GPUADVISOR_HOME": str(folder / "home"),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
    }


if __name__ == "__main__":
    main()
