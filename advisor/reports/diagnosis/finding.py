"""The words of one finding: where it is, what it shows, and what it is worth."""

from __future__ import annotations

from gpuadvisor.domain.finding import Diagnosis, Figure, Finding, Place, ScopeKind, Span
from gpuadvisor.reports import figures
from gpuadvisor.rules.engine import SEVERITIES, too_wide
from gpuadvisor.rules.facts import roofline
from gpuadvisor.rules.facts.kernel_families import short_name
from gpuadvisor.rules.facts.window import FILLED

UPPER_BOUND = "At most"
"""How the method of an estimate begins that is an upper bound."""
LEAST_SAID = 0.05
"""Percent below which a gain is none."""
LEAST_NAMED = 1 - FILLED
"""Share of a finding from which on its line, its operator and the backward pass are named: of one
with less all but the whole of it comes from elsewhere. Its share stands beside the name."""
LEAST_GAIN = SEVERITIES[-1][0]
"""Percent from which on a gain is worth a notice."""
_LONGEST = 200
"""Characters of a kernel's name: some have thousands."""


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
    return finding.source is not None and share >= LEAST_NAMED


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
    shares = percents(span, finding.method.startswith(UPPER_BOUND))
    words = f"{shares} of {whole}{_of_all_captured(finding)}"
    if finding.saving_ms:
        most_ms = finding.saving_ms * span.high / span.middle
        # Of what is only bounded, the middle is no guess at the truth.
        about = not shares.startswith("at most")
        words += f", about {figures.milliseconds(finding.saving_ms)}" if about else ""
        words += "" if about else f", {figures.milliseconds(most_ms)}"
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
