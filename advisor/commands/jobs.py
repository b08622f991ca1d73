"""List the jobs that used the GPUs, by what they waste, and say what to do about it.

The daemon keeps what each process took of each GPU. What could be gained is an estimate out of
telemetry alone, with its method, and never more than telemetry shows to be lost.
Exit status: 0; 1 where no telemetry is stored; 5 when the store cannot be used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from gpuadvisor.commands._arguments import add_json, add_markdown
from gpuadvisor.errors import AdvisorError, Interrupted, UsageError

EPILOG = """examples:
  gpuadvisor jobs
  gpuadvisor jobs --since 24h --by user
  gpuadvisor jobs --digest > week.md
  gpuadvisor jobs --json | jq '.jobs[0].advice[].text'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since", metavar="TIME", default="7d",
        help="a time ago such as 24h or 7d (default: 7d), or a moment such as 2026-01-31T18:00;"
        " from its whole hour on",
    )  # fmt: skip
    parser.add_argument("--until", metavar="TIME", help="the same; default: now")
    parser.add_argument(
        "--by", choices=("user", "script", "gpu"), help="a line for each of these, not each job"
    )
    parser.add_argument("--all", action="store_true", help="also jobs that took next to nothing")
    parser.add_argument(
        "--digest", action="store_true", help="print one page of Markdown, for a chat or a mail"
    )
    add_markdown(parser)
    add_json(parser)
    parser.add_argument("--profile-one", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    if args.profile_one:
        return _profile_one()
    given = [f"--{each}" for each in ("by", "json", "markdown") if getattr(args, each)]
    if args.digest and given:
        raise UsageError(f"--digest is a page of its own: leave out {given[0]}")
    if args.by and args.json:
        raise UsageError("--json has every job: leave out --by, and group them with jq")
    from gpuadvisor.accounting.gathering import gather
    from gpuadvisor.commands._output import note, output, write_formats
    from gpuadvisor.reports import jobs_document as report

    found = gather(args.since, args.until)
    ledger, missed_s = found.ledger, found.unmeasured_s
    jobs = [(each.job, each.gpus, each.advice) for each in found.jobs]
    groups = [
        (each.name, each.jobs, each.amounts, each.lost_hours)
        for each in found.grouped(args.by or "user")
    ]
    if args.digest:
        from gpuadvisor.daemon.alerts import host

        sys.stdout.write(report.digest(ledger, jobs, groups, missed_s, host()))
        return 0
    if not jobs and not args.json:
        none = "no process used a GPU in" if ledger.total.seconds else "nothing is known of"
        note(f"{none} this time: see a longer one with `--since 30d`")
    if args.by:
        made = report.grouped_sections(ledger, args.by, groups, missed_s)
    else:
        width = None if args.markdown or args.json else output().width
        made = report.sections(ledger, jobs, missed_s, all_rows=args.all, width=width)
    if not write_formats(
        args,
        lambda: report.jobs_json(ledger, jobs, missed_s),
        lambda: report.jobs_markdown(made),
    ):
        report.print_jobs(output(), made)
    return 0


def _profile_one() -> int:
    """Do what the daemon asks for where a job may be profiled: profile the one that wastes most of
    those that may be, and print in a line what came of it, or nothing where there is none or
    another process is at it."""
    from gpuadvisor.accounting.profiles import Noted, one_at_a_time, to_profile
    from gpuadvisor.collectors.listeners import started
    from gpuadvisor.daemon.store import store_folder
    from gpuadvisor.interruption import stoppable

    folder = store_folder()
    with stoppable() as stop, one_at_a_time(folder) as is_alone:
        chosen = to_profile(folder) if is_alone else None
        if chosen is None:
            return 0
        job, process = chosen
        who, noted = f"{job.script} (process {process.pid})", Noted(folder, process)
        try:
            name, findings = _profile(process.pid, stop.requested)
        except Interrupted:
            noted.failed("the daemon was stopped meanwhile")
            raise
        except AdvisorError as error:
            why = str(error).removeprefix(f"process {process.pid} was not profiled: ")
            if started(process.pid) is None:
                why = "it ended before a step was recorded"
            noted.failed(why)
            print(f"{who} was not profiled, and will not be again: {why}")
            return 0
        except Exception as error:
            noted.failed(f"this is a bug in gpuadvisor ({type(error).__name__}: {error})")
            raise
        noted.done(name, findings)
        print(f"{who} was profiled, once, as {name}: {findings[0]}")
        return 0


def _profile(pid: int, cancelled: Callable[[], bool]) -> tuple[str, list[str]]:
    """Record and store a profile, as `gpuadvisor profile --attach` does; return its name, and what
    it says."""
    import io

    from rich.console import Console

    from gpuadvisor.profiling.profiler import ProfileOptions, ProfileResult, profile
    from gpuadvisor.profiling.progress import Stages
    from gpuadvisor.reports.diagnosis.wording import most_important

    found: list[ProfileResult] = []
    with Stages(Console(file=io.StringIO())) as stages:
        options = ProfileOptions(program=None, pid=pid)
        profile(options, stages, found.append, lambda note: None, cancelled)
    return found[0].imported.profile.record.name, most_important(found[0].report)
