"""A night of 200 simulated jobs through the daemon's store: is any lost, or counted twice?

    python benchmarks/jobs_night.py [--jobs 200] [--gpus 8] [--hours 8] [--seed 1]

Short and long jobs, several on one GPU, one on several, some that end without a word. The daemon
ends four times on the way, its file of jobs left as a kill leaves it, and twice nobody measures for
some minutes. Prints how far jobs and what was nobody's are from what the frames come to, which is
counted without the program. Targets: 1 % of GPU-hours and of energy, no job lost or double. A job
of less than ten seconds may be seen by none of the lists of processes, which come every five.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from gpuadvisor.accounting.gathering import gather
from gpuadvisor.daemon.jobs import WithJobs
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.simulated_jobs import BEGIN_S, Night, night
from tests.telemetry_store import Clock

SHORTEST_S = 10.0
BATCH = 60


def main() -> int:
    """Play a night and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--period", type=float, default=1.0, help="seconds between two polls")
    args = parser.parse_args()
    length_s = 3600 * args.hours
    gaps = ((0.31 * length_s, 0.31 * length_s + 400), (0.7 * length_s, 0.7 * length_s + 150))
    played = night(args.seed, args.jobs, args.gpus, length_s)
    played = replace(played, gaps=gaps, period_s=args.period)
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.perf_counter()
        _play(Path(folder), played)
        took_s = time.perf_counter() - began_s
        began_s = time.perf_counter()
        report = gather(BEGIN_S, BEGIN_S + length_s + 3600, folder=Path(folder))
        read_s = time.perf_counter() - began_s
    total, found = report.ledger.total, [each.job for each in report.jobs]
    print(
        f"{len(played.jobs)} jobs on {args.gpus} GPUs: written in {took_s:.0f} s, read in"
        f" {read_s:.1f} s"
    )
    print(f"GPU-hours {total.seconds / 3600:.3f} of {played.totals.gpu_s / 3600:.3f}"
          f" ({100 * (total.seconds / played.totals.gpu_s - 1):+.3f} %)")  # fmt: skip
    print(f"energy {total.energy_j / 3.6e6:.3f} of {played.totals.energy_j / 3.6e6:.3f} kWh"
          f" ({100 * (total.energy_j / played.totals.energy_j - 1):+.3f} %)")  # fmt: skip
    commands = [job.command for job in found]
    by_command = {job.command: job for job in found}
    present_s = played.totals.present_s
    seen = [each for each in played.jobs if present_s.get(each.number, 0.0) > SHORTEST_S]
    lost = [each.number for each in seen if each.command not in by_command]
    strange = [command for command in commands if command not in {j.command for j in played.jobs}]
    print(f"lost {lost}, double {len(commands) - len(set(commands))}, invented {strange}")
    errors = [
        by_command[each.command].amounts.seconds - played.totals.by_job[each.number]
        for each in seen
        if each.command in by_command and each.number in played.totals.by_job
    ]
    print(f"of single jobs: {min(errors):+.1f} to {max(errors):+.1f} GPU-seconds,"
          f" {100 * sum(errors) / sum(played.totals.by_job.values()):+.3f} % in all")  # fmt: skip
    is_met = (
        abs(total.seconds / played.totals.gpu_s - 1) < 0.01
        and abs(total.energy_j / played.totals.energy_j - 1) < 0.01
        and not lost
        and not strange
        and len(commands) == len(set(commands))
    )
    return 0 if is_met else 1


def _play(folder: Path, played: Night) -> None:
    """Write the night's frames as five daemons, each of which is killed."""
    frames = list(played.frames())
    ends = [int(len(frames) * share) for share in (0.13, 0.31, 0.5, 0.83, 1.0)]
    begin = 0
    for end in ends:
        clock = Clock(frames[begin].time_s)
        with TelemetryWriter(folder, clock=clock) as writer:
            both = WithJobs(writer, folder)
            for at in range(begin, end, BATCH):
                part = frames[at : min(at + BATCH, end)]
                clock.now_s = part[-1].time_s
                both.append(part)
                both.tend()
            both._jobs._file.connection.close()  # no more than a kill does
        begin = end


if __name__ == "__main__":
    sys.exit(main())
