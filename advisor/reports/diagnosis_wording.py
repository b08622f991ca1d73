"""The words of a diagnosis: the same on the terminal, in Markdown and on the page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import numpy as np

from gpuadvisor.domain.finding import (
    Diagnosis,
    Figure,
    Finding,
    NotMeasured,
    Place,
    ScopeKind,
    Span,
)
from gpuadvisor.domain.profile import CallKind
from gpuadvisor.reports import (
    account_wording,
    counted_wording,
    figures,
    idle_wording,
    profile_wording,
)
from gpuadvisor.reports.diagnosis_report import MOST_AT_TOP, DiagnosisReport
from gpuadvisor.reports.profile_report import ProfileReport
from gpuadvisor.rules.engine import SEVERITIES, too_wide
from gpuadvisor.rules.facts import roofline
from gpuadvisor.rules.facts.failures import all_launches_failed, failures, none_failed
from gpuadvisor.rules.facts.fitness import lost_launches
from gpuadvisor.rules.facts.kernel_families import short_name
from gpuadvisor.rules.facts.steps import StepSource
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.window import FILLED
from gpuadvisor.rules.requirements import WITH_COUNTERS, WITH_PROFILE

UPPER_BOUND = "At most"
"""How the method of an estimate begins that is an upper bound."""
LEAST_SAID = 0.05
"""Percent below which a gain is none."""
LEAST_GAIN = SEVERITIES[-1][0]
"""Percent from which on a gain is worth a notice."""
LEAST_NAMED = 0.2
"""Share of a finding from which on an operator is named beside its line: of one with less the name
tells where a fifth is at most. [own]"""
LEAST_OF_LINE = 0.05
"""Share of a finding from which on its line is named: of one with less it tells nothing of the
other 95 %. [own]"""
_LONGEST = 200
"""Characters of a kernel's name: some have thousands."""
SOURCES = {"kineto": "the torch profiler", "nsys": "Nsight Systems", "ncu": "Nsight Compute"}


def subject(report: DiagnosisReport) -> str:
    """Return what ran: `train: 5 steps of 35.2 ms on NVIDIA H100, recorded with torch 2.8`."""
    if report.profile is None:
        window = report.telemetry
        gpus = len(window.gpus) if window is not None else 0
        lasted = figures.duration(window.seconds) if window is not None else ""
        return f"{report.name}: {lasted} of telemetry of {figures.count(gpus, 'GPU')}"
    header = report.profile.facts.profile.header
    parts = [_amount(report.profile)]
    if devices := profile_wording.devices(report.profile):
        without = "" if _operator_of_gpus(report.profile.facts) else "without a GPU"
        parts.append(f"on {devices}" if devices != "no GPU" else without)
    tool = header.tool or SOURCES.get(header.source, header.source)
    return f"{report.name}: {' '.join(filter(None, parts))}, recorded with {tool}"


def _amount(profile: ProfileReport) -> str:
    facts = profile.facts
    if facts.steps is not None and facts.steps.steps:
        # What lies between two calls of an optimizer is one step less than ran.
        ran = facts.steps.source is StepSource.OPTIMIZER and facts.fitness.not_before_ns is None
        steps = figures.count(len(facts.steps.steps) + ran, "step")
        # The CPU's steps may be ahead of the GPU's.
        if facts.time_breakdowns and facts.window.run_ns:
            return f"{steps} in {figures.nanoseconds(facts.window.run_ns)}"
        return f"{steps} of {figures.nanoseconds(facts.steps.median_ns)}"
    if facts.time_breakdowns and facts.window.run_ns:
        return figures.nanoseconds(facts.window.run_ns)
    if rows := facts.profile.rows("kernels"):
        names = facts.profile.columns("kernels", ("name",))["name"]
        launched = figures.count(len(set(names.tolist())), "kernel")
        if launched != figures.count(rows, "kernel"):
            launched = f"{figures.count(rows, 'launch', 'launches')} of {launched}"
        return f"{launched}, counted one by one"
    lasted = facts.profile.header.duration_ns
    return figures.nanoseconds(lasted) if lasted else ""


def outcome(report: DiagnosisReport) -> str:
    """Return how busy the GPU was, and what all findings are worth together."""
    busy = ""
    if _is_too_short(report):
        return found(report)
    if report.profile is not None and (accounts := report.profile.facts.time_breakdowns):
        who = "The GPU was" if len(accounts) == 1 else "The GPUs were"
        share = report.profile.facts.window.busy_share
        busy = f"{who} busy {figures.percent(share)} of the run. "
    return busy + _headline(report) + found(report)


def _headline(report: DiagnosisReport) -> str:
    """Return the largest part of a run, which comes first, whether a finding is about it or not;
    empty where the first finding is, or where it may be otherwise in a longer recording."""
    if report.profile is None or not report.profile.facts.time_breakdowns:
        return ""
    facts = report.profile.facts
    if facts.account.share_of(account_wording.near_bound_ns(facts.rooflines)) >= FILLED:
        return ""
    with_idle = facts.fitness.no_idle is None
    told = account_wording.headline(facts.account, report.diagnosis, with_idle)
    return f"{told} " if told else ""


def found(report: DiagnosisReport) -> str:
    """Return how much there is to fix, and what it is worth together, in a sentence."""
    count = len(report.worth_fixing) + report.cut
    if not count:
        if _is_too_short(report):
            return f"{_TOO_SHORT}."
        if not report.able:
            if report.source == "ncu" and counted_wording.lacks_loads(report):
                return f"{_nothing(report)}."
            return f"{_without_work(report) or 'No rule could look'}."
        looked = ", ".join(report.looked_at)
        return f"{_nothing(report)}; {_able(report)}, for {looked}."
    together = report.diagnosis.together_pct
    worth = ""
    told = "" if together is None else amount(together)
    if told and together is not None and together.high >= 1 and report.source != "ncu":
        worth = f", {'together ' if count > 1 else ''}worth {told}"
    shown = f", {len(report.worth_fixing)} of them shown" if report.cut else ""
    return f"{figures.count(count, 'thing')} to fix{worth}{shown}."


def _nothing(report: DiagnosisReport) -> str:
    """Return that nothing was found: that nothing is wrong only where useful work fills the run."""
    if report.profile is None:
        return "Nothing worth fixing was found"
    if report.source == "ncu":
        if counted_wording.lacks_loads(report):
            return (
                "No gain can be told without how busy the units are (section SpeedOfLight of Nsight"
                " Compute)"
            )
        # Counters tell how a kernel runs, not whether its work is needed.
        return f"No rule found a gain of {LEAST_GAIN:.0f} % or more of the captured kernel time"
    if _is_too_short(report):
        return _TOO_SHORT
    if without := _without_work(report):
        return f"{without}; nothing to fix was found"
    if all_launches_failed(report.profile.facts):
        return "No kernel ran, so nothing of the program can be judged"
    if report.profile.facts.fitness.no_idle is not None:
        return "Nothing can be said about idle time, and nothing to fix was found"
    facts = report.profile.facts
    if account_wording.idle_without_finding(facts.account, report.diagnosis) is not None:
        return "No rule found something to fix in the GPU's idle time"
    explained = account_wording.near_bound_ns(facts.rooflines)
    if facts.account.share_of(explained) >= FILLED:
        part = " in the part that is looked at" if facts.fitness.excerpt else ""
        return f"Nothing worth fixing was found{part}"
    return f"No rule found a gain of {LEAST_GAIN:.0f} % or more of the run"


_TOO_SHORT = "The recording is too short to find something to fix in it"


def _is_too_short(report: DiagnosisReport) -> bool:
    return report.profile is not None and report.profile.facts.too_short is not None


def _without_work(report: DiagnosisReport) -> str:
    """Return that a timeline has nothing of a GPU, and whether any was launched; empty else."""
    if report.profile is None or report.source == "ncu":
        return ""
    facts = report.profile.facts
    if facts.time_breakdowns:
        return ""
    told = "No work of a GPU was recorded"
    if launching := int(facts.host.of_kinds((CallKind.LAUNCH,)).sum()):
        made = figures.count(launching, "call")
        if all_launches_failed(facts):
            return told
        if none_failed(facts):
            return (
                f"{told}, though {made} launched some and no call returned an error: the recording"
                " lacks it"
            )
        return f"{told}, though {made} launched some: they failed, or the recording lacks it"
    if calls := facts.profile.rows("calls"):
        return f"{told}, and none of {figures.count(calls, 'call')} of CUDA launched any"
    if operator := _operator_of_gpus(facts):
        return (
            f"{told}, though {operator} ran, which does so on a GPU only: the profiler was not"
            " asked for it (`activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`), or could"
            " not"
        )
    return f"{told}, and no call that launches any"


_OF_GPUS = re.compile(r"aten::_?(cudnn|miopen)_(?!is_acceptable)\w+")
"""Names of PyTorch's operators that only a GPU runs. That cuDNN accepts something is asked on a CPU
as well."""


def _operator_of_gpus(facts: Facts) -> str:
    """Return an operator that ran and that only a GPU runs; empty where there is none."""
    named = np.unique(facts.profile.columns("operators", ("name",))["name"]).tolist()
    texts = facts.profile.header.texts
    return next((texts[name] for name in named if _OF_GPUS.fullmatch(texts[name])), "")


def limits(report: DiagnosisReport) -> list[str]:
    """Return which part of a recording was looked at and what it cannot show, in sentences."""
    if report.source == "ncu":
        return [
            *counted_wording.nothing_counted(report),
            *counted_wording.random_numbers(report),
            *counted_wording.without_time(report),
        ]
    if report.profile is None:
        return []
    facts = report.profile.facts
    if not facts.time_breakdowns:
        return [sentence(each) for each in (failures(facts), facts.fitness.note) if each]
    told = (failures(facts), *facts.looked_at, lost_launches(facts))
    return [sentence(each) for each in told if each]


def account(report: DiagnosisReport) -> list[str]:
    """Return where a run's time went, and what of it no finding explains, in sentences."""
    if report.source == "ncu":
        return [*counted_wording.levels(report), *counted_wording.stalls(report)]
    if report.profile is None or not report.profile.facts.time_breakdowns:
        return []
    facts = report.profile.facts
    whole = facts.account
    words = [account_wording.line(whole, report.diagnosis)]
    is_short = _is_too_short(report)
    left = account_wording.idle_without_finding(whole, report.diagnosis)
    if left is not None and facts.fitness.no_idle is None and not is_short:
        ranks_known = report.profile.ranks is not None
        told = idle_wording.sentences(left, facts, script(report), ranks_known)
        words.append(" ".join(told))
    words += account_wording.mostly_moves(whole, report.diagnosis, lambda: facts.copies)
    kernels = account_wording.work_without_finding(whole, report.diagnosis, facts.rooflines)
    if kernels is not None:
        of_script = script(report) if report.script or report.source == "kineto" else None
        how = "" if is_short else account_wording.counting(kernels.kernel, of_script)
        words.append(account_wording.work_sentence(kernels, how))
    return words


def _able(report: DiagnosisReport) -> str:
    return f"{len(report.able)} of {figures.count(len(report.rules), 'rule')} could look"


def first(report: DiagnosisReport) -> str:
    """Return what to fix first on one line."""
    told = most_important(report)[0]
    return f"fix first: {told}" if report.worth_fixing else told


def most_important(report: DiagnosisReport) -> list[str]:
    """Return the first things to fix, each on a line; else a line that says there are none."""
    if not report.worth_fixing:
        told = [each.rstrip(" .") for each in (_nothing(report), _headline(report)) if each]
        words = "; ".join(f"{each[:1].lower()}{each[1:]}" for each in told)
        return [f"{words}; {_able(report)}" if len(told) > 1 else f"{words} ({_able(report)})"]
    lines = []
    for each in report.worth_fixing[:MOST_AT_TOP]:
        words = worth(each, report.diagnosis, is_of_kernel(report, each)).partition(", about")[0]
        words = words.partition(";")[0]
        if each.improvement_pct is not None and not amount(each.improvement_pct):
            words = ""
        lines.append(f"{each.summary} ({each.rule}{f', worth {words}' if words else ''})")
    return lines


def sentence(words: str) -> str:
    """Return a summary as a sentence."""
    return words if words.endswith(".") else f"{words}."


def where(finding: Finding) -> str:
    """Return what it is about, with the source line where it is known."""
    scope = finding.scope
    if scope.kind is ScopeKind.RUN:
        place = "the run"
    elif scope.kind is ScopeKind.KERNEL:
        place = f"kernel {short_name(scope.name)[:_LONGEST]}"
    else:
        word = {ScopeKind.GPU: "GPU"}.get(scope.kind, scope.kind.value)
        is_named = scope.name.lower().startswith(word.lower())
        place = scope.name if is_named else f"{word} {scope.name}"
    return f"{place}, {_line(finding)}" if has_line(finding) else place


def has_line(finding: Finding) -> bool:
    """Return whether a finding has a source line that tells where it comes from."""
    share = finding.place.source_share if finding.place is not None else 1.0
    return finding.source is not None and share >= LEAST_OF_LINE


def _line(finding: Finding) -> str:
    """Return `train.py:12 in main (83 % of it)`."""
    place = finding.place or Place(source_share=1.0)
    function = f" in {place.function}" if place.function and place.function != "<module>" else ""
    return f"{finding.source}{function}{figures.of_it(place.source_share)}"


def comes_from(finding: Finding) -> str:
    """Return `module Net_0.Linear_2; aten::addmm of 128, 32x64, 64x128 (33 % of it)`; empty where
    nothing is known."""
    place, parts = finding.place, []
    if place is None:
        return ""
    if place.module:
        parts.append(f"module {place.module}{figures.of_it(place.module_share)}")
    if place.region:
        parts.append(f"range {place.region}")
    if place.operator and place.operator_share >= LEAST_NAMED:
        sizes = shapes(place.shapes)
        operator = f"{place.operator} of {sizes}" if sizes else place.operator
        parts.append(f"{operator}{figures.of_it(place.operator_share)}")
    if place.backward_share >= LEAST_NAMED:
        parts.append(f"in the backward pass{figures.of_it(place.backward_share)}")
    return "; ".join(each[:_LONGEST] for each in parts)


def shapes(told: str) -> str:
    """Return an operator's shapes as `32x64, 64x128`; what is no tensor is left out."""
    listed = [each for each in roofline.listed(told) if isinstance(each, list) and each]
    flat = [each for each in listed if all(isinstance(size, int) for size in each)]
    return ", ".join("x".join(map(str, each)) for each in flat)


def figure(each: Figure) -> str:
    """Return `gpu_idle 33.9 % (threshold 2 %)`."""
    threshold = "" if each.threshold is None else f" (threshold {_with_unit(each.threshold, each)})"
    return f"{each.metric} {_with_unit(each.value, each)}{threshold}"


def _with_unit(value: float | str, each: Figure) -> str:
    if each.unit == "bytes" and not isinstance(value, str):
        return figures.memory(value)
    if isinstance(value, str):
        shown = value
    elif float(value).is_integer() and abs(value) < 1e15:
        shown = f"{int(value):,}"
    else:
        shown = figures.number(value)
    return f"{shown} {each.unit}".rstrip()


def worth(finding: Finding, diagnosis: Diagnosis, of_kernel: bool = False) -> str:
    """Return `17 to 34 % of the run, about 267 ms`; empty where it is no matter of time."""
    span = finding.improvement_pct
    if span is None:
        return ""
    if span.high < LEAST_SAID:
        return "nothing, as far as can be told"
    whole = "this kernel's time" if of_kernel else "the run"
    if too_wide(span) and not of_kernel:
        more = f"{shown}; how much more" if (shown := amount(span)) else "how much"
        return f"{more} cannot be told from this recording"
    words = f"{percents(span, finding.method.startswith(UPPER_BOUND))} of {whole}"
    words += _of_all_captured(finding)
    if finding.saving_ms:
        words += f", about {figures.milliseconds(finding.saving_ms)}"
        whole_ms = 100 * finding.saving_ms / span.middle if of_kernel else diagnosis.run_ms
        if whole_ms:
            words += f" of {figures.milliseconds(whole_ms)}"
            words += " in its launches of this shape" if of_kernel else ""
    return words


def amount(span: Span) -> str:
    """Return `17 to 34 % of the run`; of a range too wide for an answer `at least 17 % of the run`,
    and nothing where not even a notice's worth is shown."""
    if not too_wide(span):
        return f"{percents(span)} of the run"
    return f"at least {span.low:.0f} % of the run" if span.low >= LEAST_GAIN else ""


def method(finding: Finding) -> str:
    """Return how a finding's worth is estimated, and what a range too wide for an answer is."""
    span = finding.improvement_pct
    if span is None or not too_wide(span) or finding.captured_pct is not None:
        return finding.method
    range_ = f"{span.low:.0f} to {span.high:.0f} %"
    return f"Estimated at {range_}, too wide a range to tell. {finding.method}".rstrip()


def shares_of_kernel(finding: Finding) -> str:
    """Return `31 to 63 % of this kernel's time, at most 0.05 % of all that was captured`, of a
    kernel that has a small part of that; else empty."""
    span, beside = finding.improvement_pct, _of_all_captured(finding)
    if span is None or span.high < LEAST_SAID or not beside:
        return ""
    return f"{percents(span, finding.method.startswith(UPPER_BOUND))} of this kernel's time{beside}"


def _of_all_captured(finding: Finding) -> str:
    """Return `, at most 0.05 % of all that was captured`; empty for all but a part of it."""
    captured, own = finding.captured_pct, finding.improvement_pct
    if captured is None or own is None or captured.high >= figures.ALL * own.high:
        return ""
    amount = f"at most {captured.high:.2g} %" if captured.high >= 0.01 else "less than 0.01 %"
    return f", {amount} of all that was captured"


def percents(span: Span, is_bound: bool = False) -> str:
    """Return `17 to 34 %`; of an upper bound `17 to at most 34 %`."""
    digits = 1 if span.high < 3 else 0
    low, high = (f"{each:.{digits}f}" for each in (span.low, span.high))
    if is_bound:
        return (
            f"at most {high} %" if not float(low) or low == high else f"{low} to at most {high} %"
        )
    return f"{high} %" if low == high else f"{low} to {high} %"


def is_of_kernel(report: DiagnosisReport, finding: Finding) -> bool:
    """Return whether an improvement is of a kernel, as nothing tells its part of the run."""
    return report.source == "ncu" and finding.scope.kind is ScopeKind.KERNEL


def trial(report: DiagnosisReport, finding: Finding) -> tuple[str, str]:
    """Return the command that tries the cure, and which knobs could come next."""
    if not finding.knobs:
        return "", ""
    first, *others = finding.knobs
    script = report.script or ("SCRIPT",)
    own, dashes, rest = _parted(script)
    words = shlex.join(["gpuadvisor", "tune", *own, "--only", first, *dashes, *rest])
    return words, _joined(others, " or ")


WAYS_OF_PROGRAM = {
    WITH_PROFILE: "nsys profile --trace=cuda,nvtx -o timeline PROGRAM (then gpuadvisor diagnose"
    " timeline.nsys-rep)",
    WITH_COUNTERS: "ncu --set full -o counted PROGRAM (then gpuadvisor diagnose counted.ncu-rep)",
}
"""How to measure something of a program that need be no Python script, in place of gpuadvisor's
command for a script."""


def way(report: DiagnosisReport, how: str) -> str:
    """Return how to measure something, with the script's name where it is known."""
    if report.is_of_program:
        return WAYS_OF_PROGRAM.get(how, how)
    command = how.replace("SCRIPT", script(report))
    if report.profile is None or report.profile.facts.time_breakdowns or report.source != "kineto":
        return command
    if _operator_of_gpus(report.profile.facts):
        return command
    # Where nothing ran on a GPU the same command would tell as little again.
    return f"on a machine with a GPU, {command}" if command.startswith("gpuadvisor ") else command


def script(report: DiagnosisReport) -> str:
    """Return the script as one names it to gpuadvisor, `SCRIPT` where it is not known."""
    if not report.script:
        return "SCRIPT"
    own, dashes, rest = _parted(report.script)
    return shlex.join([*own, *dashes, *rest])


def _parted(script: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the script's name, and its own arguments behind `--`."""
    own = 2 if script[0] == "-m" else 1
    rest = list(script[own:])
    return list(script[:own]), ["--"] if rest else [], rest


def more(report: DiagnosisReport) -> str:
    """Return how many findings are not shown at the top, in a sentence; empty where none are."""
    others = len(report.worth_fixing[MOST_AT_TOP:])
    symptoms = sum(map(len, report.hidden.values()))
    parts = []
    if others:
        parts.append(f"{others} more")
    if symptoms:
        causes = "; ".join(
            f"{', '.join(dict.fromkeys(each.rule for each in found))} of {cause}"
            for cause, found in report.hidden.items()
        )
        # The finding that a symptom comes from may itself be a remark, which is not shown either.
        of = "another finding" if symptoms == 1 else "other findings"
        parts.append(f"{figures.count(symptoms, 'symptom')} of {of} ({causes})")
    if remarks := len(report.remarks):
        parts.append(f"{figures.count(remarks, 'remark')}")
    return f"Not shown: {', '.join(parts)}" if parts else ""


def by_reason(found: Sequence[NotMeasured]) -> dict[str, list[str]]:
    """Return what is missing to the names of the rules that lack it."""
    reasons: dict[str, list[str]] = {}
    for each in found:
        reasons.setdefault(each.why, []).append(each.rule)
    return reasons


def rules(found: Sequence[NotMeasured], most: int = 2) -> str:
    """Return which rules could not look: `tail, divergence and 4 more`, and why if it is one."""
    reasons = {each.why for each in found}
    because = f" ({reasons.pop()})" if len(reasons) == 1 else ""
    names = [each.rule for each in found]
    if len(names) > most + 1:
        names[most:] = [f"{len(names) - most} more"]
    return f"{_joined(names, ' and ')}{because}"


def _joined(words: Sequence[str], last: str) -> str:
    """Return `a, b and c` with the word that stands before the last one."""
    return last.join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
