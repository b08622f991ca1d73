"""What the daemon starts where a job may be profiled: `gpuadvisor jobs --profile-one`."""

from __future__ import annotations

from collections.abc import Callable

from gpuadvisor.errors import AdvisorError, Interrupted


def profile_one() -> int:
    """Profile the job that wastes most of those that may be, and print in a line what came of it;
    print nothing where there is none, or another process is at it."""
    from gpuadvisor.accounting.profiles import Noted, one_at_a_time, to_profile
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
    from gpuadvisor.reports.diagnosis_wording import most_important

    found: list[ProfileResult] = []
    with Stages(Console(file=io.StringIO())) as stages:
        options = ProfileOptions(program=None, pid=pid)
        profile(options, stages, found.append, lambda note: None, cancelled)
    return found[0].imported.profile.record.name, most_important(found[0].report)
