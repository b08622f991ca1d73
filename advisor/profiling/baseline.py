"""The diagnosis of the unchanged script with which tuning begins; its profile is not kept."""

from __future__ import annotations

from collections.abc import Callable

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.finding import Diagnosis
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.errors import AdvisorError, ScriptError
from gpuadvisor.profiling.evidence import evidence_of
from gpuadvisor.profiling.naming import Named
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.profiling.recording import DEFAULT_STEPS, FEWEST_STEPS, RecordOptions, record
from gpuadvisor.rules.engine import diagnose

LONGEST_MS = 10_000.0
"""Time of the steps that are recorded, unless two take longer: it is the budget's."""


def profile_baseline(
    command: Command,
    measured: Measurement,
    device: Device,
    cores: tuple[int, ...] = (),
    cancelled: Callable[[], bool] = lambda: False,
) -> Diagnosis:
    """Profile some steps of a script on one GPU and return what is wrong with it.

    It keeps to `cores` (empty for all), as the runs do that it is compared with.

    Raises:
        ScriptError: if it cannot be profiled, or its trace not be read.
        Interrupted: if it was cancelled.
    """
    steps = min(DEFAULT_STEPS, max(FEWEST_STEPS, int(LONGEST_MS / measured.mean_step_ms)))
    with run_folder() as folder:
        options = RecordOptions(command, steps, device=device, cores=cores, cancelled=cancelled)
        recorded = record(options, folder)
        try:
            profile = read_profile(recorded.file)
            named = Named(command.script, str(recorded.file), profile)
            return diagnose(evidence_of(named, measured))
        except AdvisorError as error:
            raise ScriptError(f"its trace cannot be read: {error}") from error
        except Exception as error:  # tuning can do without
            what = f"{type(error).__name__}: {error}"
            raise ScriptError(f"its trace cannot be read ({what}): report this bug") from error
