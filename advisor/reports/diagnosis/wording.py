"""The words of a diagnosis: the same on the terminal, in Markdown and on the page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gpuadvisor.domain.finding import (
    Finding,
    NotMeasured,
    ScopeKind,
)
from gpuadvisor.domain.profile import CUT_OFF, LOST, CallKind, failed_calls
from gpuadvisor.domain.telemetry_window import LONGEST_STEP_S
from gpuadvisor.reports import figures
from gpuadvisor.reports.diagnosis import account as account_wording
from gpuadvisor.reports.diagnosis import counted as counted_wording
from gpuadvisor.reports.diagnosis import idle as idle_wording
from gpuadvisor.reports.diagnosis.finding import LEAST_GAIN, amount, sentence, worth
from gpuadvisor.reports.diagnosis.report import (
    MOST_AT_TOP,
    DiagnosisReport,
    is_of_amd,
    operator_of_gpus,
    script_parts,
)
from gpuadvisor.reports.profile import wording as profile_wording
from gpuadvisor.reports.profile.report import ProfileReport
from gpuadvisor.rules.device import sm_count
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.failures import (
    all_launches_failed,
    failures,
    lost_launches,
    none_failed,
)
from gpuadvisor.rules.facts.steps import StepSource
from gpuadvisor.rules.facts.window import FILLED
from gpuadvisor.rules.paces import why_not_timed

SOURCES = {"kineto": "the torch profiler", "nsys": "Nsight Systems", "ncu": "Nsight Compute"}


def subject(report: DiagnosisReport) -> str:
    """Return what ran: `train: 5 steps of 35.2 ms on NVIDIA H100, recorded with torch 2.8`."""
    if report.profile is None:
        window = report.telemetry
        gpus = len(window.gpus) if window is not None else 0
        lasted = figures.duration(window.measured_s) if window is not None else ""
        within = ""
        if window is not None and window.unmeasured_s >= LONGEST_STEP_S:
            within = f", in {figures.duration(window.seconds)},"
        return f"{report.name}: {lasted} of telemetry{within} of {figures.count(gpus, 'GPU')}"
    header = report.profile.facts.profile.header
    parts = [_amount(report.profile)]
    if devices := profile_wording.devices(report.profile):
        without = "" if operator_of_gpus(report.profile.facts) else "without a GPU"
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
        return "No kernel ran to its end, so nothing of the program can be judged"
    if report.profile.facts.fitness.no_idle is not None:
        return "Nothing can be said about idle time, and nothing to fix was found"
    facts = report.profile.facts
    if account_wording.idle_without_finding(facts.account, report.diagnosis) is not None:
        return "No rule found something to fix in the GPU's idle time"
    explained = account_wording.near_bound_ns(facts.rooflines)
    if facts.account.share_of(explained) >= FILLED:
        part = " in the part that is looked at" if facts.fitness.excerpt else ""
        return f"Nothing worth fixing was found{part}"
    told = f"No rule found a gain of {LEAST_GAIN:.0f} % or more of the run"
    remarked = [
        each.rule
        for each in report.diagnosis.shown
        if each.improvement_pct is not None and each.improvement_pct.high >= LEAST_GAIN
    ]
    return f"{told} beyond what is only remarked ({', '.join(remarked)})" if remarked else told


MOST_NAMED = 2
"""Rules that could not look which are named; of more, their number is said."""
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
    if CUT_OFF in facts.profile.header.facts:
        return f"{told} in what could be read of the file"
    if launching := int(facts.host.of_kinds((CallKind.LAUNCH,)).sum()):
        made = figures.count(launching, "call")
        if all_launches_failed(facts):
            return told
        if failed_calls(facts.profile.header.facts) is not None:
            some = "no call" if none_failed(facts) else "not all of them"
            return (
                f"{told}, though {made} launched some and {some} returned an error: the recording"
                " lacks it"
            )
        return f"{told}, though {made} launched some: they failed, or the recording lacks it"
    if calls := facts.profile.rows("calls"):
        return f"{told}, and none of {figures.count(calls, 'call')} of CUDA launched any"
    if operator := operator_of_gpus(facts):
        return (
            f"{told}, though {operator} ran, which does so on a GPU only: the profiler was not"
            " asked for it (`activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`), or could"
            " not"
        )
    none = f"{told}, and no call that launches any"
    if report.source != "nsys":
        return none
    return f"{none}: `nsys profile --trace=cuda,nvtx` records them, where a program makes any"


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
    lacks = [facts.profile.header.facts.get(each) for each in (CUT_OFF, LOST)]
    if not facts.time_breakdowns:
        without = (*lacks, failures(facts), facts.fitness.note)
        return [sentence(each) for each in without if each]
    told = (*lacks, failures(facts), *facts.looked_at, lost_launches(facts), why_not_timed(facts))
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
    if all_launches_failed(facts):
        return words
    is_short = _is_too_short(report)
    left = account_wording.idle_without_finding(whole, report.diagnosis)
    if left is not None and facts.fitness.no_idle is None and not is_short:
        ranks_known = report.profile.ranks is not None
        told = idle_wording.sentences(left, facts, report.script_words, ranks_known)
        words.append(" ".join(told))
    claimed = account_wording.claims(report.diagnosis)
    if not facts.profile.rows("operators") and set(idle_wording.OF_HOST) & set(claimed):
        words += idle_wording.own_time(facts)[0]
    words += account_wording.mostly_moves(whole, report.diagnosis, lambda: facts.copies)
    kernels = account_wording.work_without_finding(whole, report.diagnosis, facts.rooflines)
    if kernels is not None:
        of_script = report.script_words if report.script or report.source == "kineto" else None
        how = account_wording.counting(kernels.kernel, of_script)
        if is_of_amd(facts):
            how = account_wording.COUNTING_ON_AMD
        how = "" if is_short else how
        words.append(account_wording.work_sentence(kernels, how))
    if not is_short and "kernels.grid_x" not in facts.profile.header.not_measured:
        count = sm_count(Evidence(facts))
        parts = facts.kernel_shapes, count, facts.kernels_at_once
        words.append(account_wording.small_grids(whole, report.diagnosis, *parts))
    return [each for each in words if each]


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


def is_of_kernel(report: DiagnosisReport, finding: Finding) -> bool:
    """Return whether an improvement is of a kernel, as nothing tells its part of the run."""
    return report.source == "ncu" and finding.scope.kind is ScopeKind.KERNEL


def trial(report: DiagnosisReport, finding: Finding) -> tuple[str, str]:
    """Return the command that tries the cure, and which knobs could come next."""
    if not finding.knobs:
        return "", ""
    first, *others = finding.knobs
    script = report.script or ("SCRIPT",)
    own, dashes, rest = script_parts(script)
    words = shlex.join(["gpuadvisor", "tune", *own, "--only", first, *dashes, *rest])
    return words, _joined(others, " or ")


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


def rules(found: Sequence[NotMeasured]) -> str:
    """Return which rules could not look: `tail, divergence and 4 more`, and why if it is one."""
    reasons = {each.why for each in found}
    because = f" ({reasons.pop()})" if len(reasons) == 1 else ""
    names = [each.rule for each in found]
    if len(names) > MOST_NAMED + 1:
        names[MOST_NAMED:] = [f"{len(names) - MOST_NAMED} more"]
    return f"{_joined(names, ' and ')}{because}"


def _joined(words: Sequence[str], last: str) -> str:
    """Return `a, b and c` with the word that stands before the last one."""
    return last.join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
