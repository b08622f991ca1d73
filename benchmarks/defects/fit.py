"""Fit the ranges of rules to measured cures, and say how often they hold on programs never seen.

    python benchmarks/defects/fit.py [results.jsonl ...] [--seen results.jsonl ...]
        [--fresh results.jsonl ...] [--write rules/calibration.json]

Conformal prediction of ranges (Romano, Patterson, Candes: "Conformalized quantile regression",
2019): by how much the measured gains of the fitted part miss a rule's own range is counted, and the
range is widened, never narrowed, so that nine in ten of them lie in it, and of gains from the same
generator that nobody looked at at least as many, whatever their distribution. Printed are coverage
and width on the held-out part, by rule, before and after; how often the first finding names the
defect; and what is found on healthy programs. A rule with too few pairs keeps its range.

Profiles that tell what steps took without the profiler are fitted and shown by themselves. What was
looked at (`--seen`) is fitted to as a whole, and of it is told how often ranges hold that were
fitted to all others, each pair left out in turn. Of what nobody has looked at (`--fresh`) nothing
is fitted to.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pairs import FIT, HEALTHY, HELD_OUT
from scipy import stats

from gpuadvisor.domain.finding import Span
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.calibration import Fit, missed_by

COVERAGE = 0.9
"""Share of gains that a range is to hold."""
EFFECT_PCT = 5.0
"""Least gain that makes a defect one: the low end of its interval. What costs less need not be
what is found first. [own]"""
USEFUL_PCT = 50.0
"""Largest width, in percent of the run, that fitted ranges may have in the median: where they would
be wider, the gains lie so far apart that the rule keeps its own. [own]"""
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """What a rule said of a program, and what the cure of its defect saved."""

    pair: str
    rule: str
    given: Span
    """The rule's own range, in percent of the run."""
    gain_pct: float
    part: str


def fitted(misses: Sequence[float], coverage: float = COVERAGE) -> float | None:
    """Return by how much ranges have to be wider on either side for such a share of gains to lie in
    them, given by how much each misses its own; None for too few, nine for nine in ten."""
    taken = math.ceil((len(misses) + 1) * coverage - 1e-9)
    return sorted(misses)[taken - 1] if 0 < taken <= len(misses) else None


def cases_of(rows: Iterable[Row]) -> list[Case]:
    """Return the pairs in which a rule that names the defect gave a range."""
    found = []
    for row in rows:
        finding = naming(row)
        if finding is None or row["gain_pct"] is None:
            continue
        given = finding.get("uncalibrated_pct") or finding["improvement_pct"]
        span = Span(given["low"], given["high"])
        gain = max(row["gain_pct"]["value"], 0.0)
        found.append(Case(row["pair"], finding["rule"], span, gain, row["part"]))
    return found


def naming(row: Row) -> Row | None:
    """Return the first finding with a range that names a program's defect."""
    for finding in shown(row):
        if finding["rule"] in row["accepts"] and "improvement_pct" in finding:
            return finding
    return None


def shown(row: Row) -> list[Row]:
    """Return what is shown of a diagnosis, the most severe first."""
    return [each for each in row["diagnosis"]["findings"] if "hidden_by" not in each]


def fits_of(cases: Sequence[Case]) -> dict[str, Fit]:
    """Return the fits of the rules with enough pairs in the part that is fitted to."""
    found = {}
    for rule, some in by_rule(each for each in cases if each.part == FIT).items():
        points = fitted([missed_by(each.given, each.gain_pct) for each in some])
        if points is None:
            continue
        fit = Fit(round(points, 2), len(some))
        if median(fit.span(each.given).width for each in some) <= USEFUL_PCT:
            found[rule] = fit
    return found


def by_rule(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """Return cases by their rules, in the order of these."""
    found = defaultdict(list)
    for each in cases:
        found[each.rule].append(each)
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Held:
    """How often ranges hold the gains, and how wide they are."""

    inside: int
    count: int
    width_points: float

    @classmethod
    def of(cls, spans: Sequence[Span], gains: Sequence[float]) -> Held:
        inside = sum(span.low <= gain <= span.high for span, gain in zip(spans, gains, strict=True))
        return cls(inside, len(spans), median(each.width for each in spans) if spans else 0.0)

    def __str__(self) -> str:
        if not self.count:
            return "- | -"
        low = stats.beta.ppf(0.05, self.inside, self.count - self.inside + 1) if self.inside else 0
        return f"{self.inside} of {self.count} (at least {low:.0%}) | {self.width_points:.0f}"


def held(cases: Sequence[Case], fits: dict[str, Fit]) -> Held:
    """Return how often the ranges of rules hold, those that were fitted as they are then."""
    spans = [
        fits[each.rule].span(each.given) if each.rule in fits else each.given for each in cases
    ]
    return Held.of(spans, [each.gain_pct for each in cases])


def left_out(cases: Sequence[Case]) -> Held:
    """Return how often ranges hold that were fitted to all other pairs of the fitted part."""
    spans = []
    for some in by_rule(cases).values():
        misses = [missed_by(each.given, each.gain_pct) for each in some]
        for number, each in enumerate(some):
            points = fitted(misses[:number] + misses[number + 1 :]) or 0.0
            spans.append((Fit(points, 0).span(each.given), each.gain_pct))
    return Held.of([span for span, _ in spans], [gain for _, gain in spans])


def table(cases: Sequence[Case], fits: dict[str, Fit], part: str = HELD_OUT) -> str:
    """Return coverage and width on a part, by rule, before and after."""
    tried = [each for each in cases if each.part == part]
    rows = by_rule(tried)
    lines = [
        "| rule | fitted to | as given: inside | width | fitted: inside | width |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for rule in sorted({*rows, *fits}):
        some = rows.get(rule, [])
        count = fits[rule].pairs if rule in fits else "too few"
        after = held(some, fits) if rule in fits else "not calibrated |"
        lines.append(f"| {rule} | {count} | {held(some, {})} | {after} |")
    lines.append(f"| all | | {held(tried, {})} | {held(tried, fits)} |")
    return "\n".join(lines)


def scores(rows: Sequence[Row]) -> str:
    """Return how often the first finding is right, and what healthy programs are told."""
    defective = [row for row in rows if row["defect"] != HEALTHY]
    costly = [row for row in defective if row["gain_pct"]["low"] >= EFFECT_PCT]
    nameable = [row for row in costly if row["accepts"]]
    wrong = [row for row in nameable if not is_right(row)]
    healthy = [row for row in rows if row["defect"] == HEALTHY]
    loud = [row for row in healthy if alarms(row)]
    lines = [
        f"first finding right: {len(nameable) - len(wrong)} of {len(nameable)} programs with a"
        f" defect that costs {EFFECT_PCT:.0f} % and that some rule names"
        f" ({len(costly) - len(nameable)} more that none names, {len(defective) - len(costly)}"
        " that cost less)",
        f"healthy programs with nothing above a notice: {len(healthy) - len(loud)} of"
        f" {len(healthy)}",
    ]
    lines += [
        f"  {row['pair']}: {first(row)}; right is {row['accepts']}{besides(row)}" for row in wrong
    ]
    lines += [f"  {row['pair']}: {', '.join(alarms(row))}" for row in loud]
    return "\n".join(lines)


def besides(row: Row) -> str:
    """Return that the cured form leaves the GPU idle for longer than the defect costs, where it
    does: then the program has a larger defect than the planted one."""
    gain = row["gain_pct"]
    if (busy_ms := gain.get("cured_busy_ms")) is None:
        return ""
    idle_ms, saved_ms = gain["cured_ms"] - busy_ms, gain["planted_ms"] - gain["cured_ms"]
    if idle_ms <= saved_ms:
        return ""
    idle, saved = (100 * each / gain["planted_ms"] for each in (idle_ms, saved_ms))
    return f"; without the defect, which costs {saved:.0f} %, the GPU is idle for {idle:.0f} %"


def is_right(row: Row) -> bool:
    """Say whether the first finding that is at least a notice names the defect."""
    return first(row) in row["accepts"]


def first(row: Row) -> str:
    """Return the rule of the first finding, unless it is only for information."""
    found = [each["rule"] for each in shown(row) if rank(each) >= Severity.NOTICE.rank]
    return found[0] if found else "nothing"


def alarms(row: Row) -> list[str]:
    """Return the rules that say more than a notice."""
    return [each["rule"] for each in shown(row) if rank(each) > Severity.NOTICE.rank]


def rank(finding: Row) -> int:
    """Return how severe a finding is."""
    return Severity(finding["severity"]).rank


def constants(cases: Sequence[Case]) -> Row:
    """Return the fits of rules, with how often they hold on what they were not fitted to."""
    fits, tried = fits_of(cases), by_rule(each for each in cases if each.part == HELD_OUT)
    rules = {}
    for name, fit in fits.items():
        found = held(tried.get(name, []), fits)
        rules[name] = {
            "points": fit.points, "pairs": fit.pairs,
            "held_out": {"inside": found.inside, "pairs": found.count,
                         "width_points": round(found.width_points, 1)},
        }  # fmt: skip
    return rules


def written(rows: Sequence[Row]) -> str:
    """Return the table of constants for the product, with what it rests on."""
    plain, timed = (cases_of(some) for some in apart(rows))
    told = {
        "gpu": one_gpu(rows),
        "date": max(row["date"] for row in rows)[:10],
        "source": "benchmarks/defects/fit.py",
        "coverage": COVERAGE,
        "rules": constants(plain),
        "timed": constants(timed),
    }
    return json.dumps(told, indent=1) + "\n"


def apart(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Return rows whose steps were timed with the profiler only, and those of others."""
    found: tuple[list[Row], list[Row]] = [], []
    for row in rows:
        found[is_timed(row)].append(row)
    return found


def is_timed(row: Row) -> bool:
    """Return whether the steps of a profile were timed without the profiler as well, and that was
    used."""
    told = row["diagnosis"]
    return told.get("unprofiled_step_ms") is not None and not told.get("unprofiled_not_used")


def one_gpu(rows: Sequence[Row]) -> str:
    """Return the GPU on which all was measured; SystemExit where there was none, or several."""
    names = {row["device"]["gpu"] for row in rows if row.get("device")}
    if names == {""}:
        raise SystemExit("these were measured on a CPU: nothing can be fitted to them")
    if len(names) != 1:
        raise SystemExit(f"one GPU at a time: these are of {', '.join(sorted(names)) or 'none'}")
    return names.pop()


def read(paths: Iterable[Path]) -> list[Row]:
    """Return what was measured and diagnosed, the last line of each pair, with steps timed without
    the profiler and without such."""
    found: dict[tuple[str, bool], Row] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[row["pair"], "diagnosis" in row and is_timed(row)] = row
    return [row for row in found.values() if "error" not in row]


def main() -> None:
    """Print the scores and the table, and write what was fitted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="*")
    parser.add_argument(
        "--seen", type=Path, nargs="+", default=[], help="results of which all are fitted to"
    )
    parser.add_argument(
        "--fresh", type=Path, nargs="+", default=[], help="results of which none are fitted to"
    )
    parser.add_argument(
        "--part",
        choices=(HELD_OUT, FIT),
        help="the part to show: while rules or the generator change, only what is fitted to, as it"
        " is where all was seen",
    )
    parser.add_argument("--write", type=Path, help="the product's table of constants")
    chosen = parser.parse_args()
    seen = [{**row, "part": FIT} for row in read(chosen.seen)]
    fresh = [{**row, "part": HELD_OUT} for row in read(chosen.fresh)]
    rows = seen + fresh + read(chosen.results)
    part = chosen.part or (HELD_OUT if chosen.results or fresh else FIT)
    for some, how in zip(apart(rows), ("", ", timed without the profiler as well"), strict=True):
        if some:
            print(told(some, part, how))
    if chosen.write:
        chosen.write.write_text(written(rows))


def told(rows: Sequence[Row], part: str, how: str) -> str:
    """Return what is printed of some programs' part."""
    cases = cases_of(rows)
    lines = [
        f"{len(rows)} programs{how}; ranges on the part {part}:\n",
        table(cases, fits_of(cases), part),
    ]
    if part == FIT:
        tried = left_out([each for each in cases if each.part == FIT])
        lines.append(f"\neach left out in turn: {str(tried).replace(' |', '; width')}")
    return "\n".join([*lines, "", scores([row for row in rows if row["part"] == part]), ""])


if __name__ == "__main__":
    main()
