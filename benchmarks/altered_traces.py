"""Whether a diagnosis says something else, and surely, of a trace that was recorded otherwise.

    python benchmarks/altered_traces.py TRACE.json[.gz]...

Each trace of torch's profiler is diagnosed as it is and altered as recordings differ: begun later,
ended earlier, without the GPU's or the CPU's part of that, with lost events, without operators,
stacks, steps or calls into CUDA, with names of kernels that nobody knows, and at another time of
the day. The program is the same, so what is worth a warning in one of them and nothing in the
unaltered trace is wrong in one of the two. Prints these, and how many there are.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpuadvisor.domain.finding import Finding
from gpuadvisor.domain.severity import Severity
from gpuadvisor.errors import AdvisorError
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.fitness import judged
from gpuadvisor.rules.registry import load_rules

Event = dict[str, Any]
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
MARKS = ("cpu_op", "python_function", "user_annotation")
LOST = 0.1
"""Part of the events that is lost, where some are."""
SURE = (Severity.WARNING, Severity.CRITICAL)


def main() -> None:
    """Diagnose the traces that were named, and print what differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("traces", nargs="+", type=Path)
    traces = altered = differ = 0
    for path in parser.parse_args().traces:
        trace = trace_of(path)
        events = trace["traceEvents"]
        if not any(map(on_gpu, events)):
            continue
        known = {each.rule for each in findings(trace) if each.severity is not Severity.INFO}
        traces += 1
        for how, kept in alterations(events):
            altered += 1
            for each in findings({**trace, "traceEvents": kept}):
                if each.severity in SURE and each.rule not in known:
                    differ += 1
                    print(f"{path.name}, {how}: {each.rule} ({each.severity}): {each.summary}")
    print(f"{differ} of {altered} altered traces of {traces} have a warning that the trace has not")


def trace_of(path: Path) -> dict[str, Any]:
    """Return the content of a trace's file; without events where the file is no such trace."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", errors="replace") as file:
            found = json.load(file)
    except ValueError:
        found = {}
    trace = found if isinstance(found, dict) else {"traceEvents": found}
    events = [each for each in trace.get("traceEvents", ()) if isinstance(each, dict)]
    return {**trace, "traceEvents": events}


def findings(trace: dict[str, Any]) -> tuple[Finding, ...]:
    """Return what is found in a trace; nothing where it is refused."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(trace, file)
        file.flush()
        try:
            facts = judged(read_profile(Path(file.name)))
        except AdvisorError:
            return ()
    return diagnose(Evidence(facts=facts), RULES).findings


RULES = load_rules()


def alterations(events: list[Event]) -> Iterator[tuple[str, list[Event]]]:
    """Yield the trace as it would be if it had been recorded otherwise, with how that was."""
    chance = random.Random(1)
    begins = [float(each["ts"]) for each in events if on_gpu(each)]
    first, last = min(begins), max(map(ended, filter(on_gpu, events)))

    def without(gone: Callable[[Event], bool]) -> list[Event]:
        return [each for each in events if not gone(each)]

    for part in (0.2, 0.45):
        at = first + part * (last - first)
        yield f"from {part:.0%} on", without(lambda e: lasts(e) and float(e["ts"]) < at)  # noqa: B023
        yield (
            f"the GPU from {part:.0%} on",
            without(lambda e: on_gpu(e) and float(e["ts"]) < at),  # noqa: B023
        )
    for part in (0.55, 0.8):
        at = first + part * (last - first)
        yield f"until {part:.0%}", without(lambda e: lasts(e) and ended(e) > at)  # noqa: B023
        yield f"the GPU until {part:.0%}", without(lambda e: on_gpu(e) and ended(e) > at)  # noqa: B023
    yield "without stacks", without(lambda e: e.get("cat") == "python_function")
    yield "without operators", without(lambda e: e.get("cat") in MARKS)
    yield "without steps", without(lambda e: str(e.get("name")).startswith("ProfilerStep"))
    yield "without calls into CUDA", without(lambda e: e.get("cat") in CALLS)
    yield "the GPU alone", without(lambda e: lasts(e) and not on_gpu(e))
    for what, kinds in (("the GPU's events", ON_GPU), ("calls", CALLS), ("operators", MARKS[:1])):
        yield (
            f"{LOST:.0%} of {what} lost",
            without(lambda e: e.get("cat") in kinds and chance.random() < LOST),  # noqa: B023
        )
    names: dict[str, str] = {}
    yield (
        "names of kernels that nobody knows",
        [
            {**e, "name": names.setdefault(str(e["name"]), f"function_{len(names)}")}
            if e.get("cat") == "kernel" else e for e in events
        ],
    )  # fmt: skip
    yield (
        "at another time",
        [{**e, "ts": float(e["ts"]) + 1e7} if e.get("ts") else e for e in events],
    )


def lasts(event: Event) -> bool:
    """Say whether an event has a begin and a duration."""
    return event.get("ph") == "X" and "ts" in event


def on_gpu(event: Event) -> bool:
    """Say whether an event is work of a GPU."""
    return lasts(event) and event.get("cat") in ON_GPU


def ended(event: Event) -> float:
    """Return when an event ended, in microseconds."""
    return float(event["ts"]) + float(event.get("dur", 0.0))


if __name__ == "__main__":
    main()
