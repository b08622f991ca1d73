"""What findings promised of scripts before `tune` tried anything, and what their knobs brought.

    python benchmarks/predicted_and_measured.py FOLDER_OR_FILE...

Reads what `gpuadvisor tune --json` wrote, each `study.json` and `*.json` below a folder, as
`hand_rows.py studies` keeps them. Prints a line an expectation, as Markdown, and how many of those
that were both estimated and measured lie inside: by proof or ablation, and, counted by themselves,
by blocks of steps of one running process. What neither measured is counted with its reason.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from statistics import fmean, median
from typing import Any

from scipy.stats import binomtest

OF_BASELINES = "of the runs that it was made from"


def main() -> None:
    """Print the table of the studies that were named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("places", nargs="+", type=Path)
    inside = defaultdict[str, list[bool]](list)
    widths: list[float] = []
    reasons = Counter[str]()
    places = parser.parse_args().places
    if gone := [str(place) for place in places if not place.exists()]:
        parser.error(f"there is no {', '.join(gone)}")
    print("| script | GPU | finding | predicted | measured |\n| --- | --- | --- | --- | --- |")
    for study in studies(places):
        for each in study["expectations"]:
            predicted, proven = each["predicted_pct"], each["measured_pct"]
            measured = proven or each.get("screened_pct")
            if predicted is None or measured is None:
                reasons[each["why_not_measured"] or "no range was told"] += 1
                continue
            how = "proven" if proven else "in one process"
            if measured.get("of_computing"):
                how = "in one process, of the computing"
            is_met = predicted["low"] <= measured["value"] <= predicted["high"]
            inside[how].append(is_met)
            if (share := saved_of_baselines(study, each)) is not None:
                how = f"{how}; {share:.1f} % of the runs that it was made from"
                inside[OF_BASELINES].append(predicted["low"] <= share <= predicted["high"])
            widths.append(predicted["high"] - predicted["low"])
            print(row(study, each, measured, f"{how}{'' if is_met else ', **outside**'}"))
    for how, met in inside.items():
        print(f"\n{how}: {sum(met)} of {len(met)} inside", end="")
        if met:
            sure = binomtest(sum(met), len(met)).proportion_ci()
            print(f" (95 % interval {sure.low:.0%} to {sure.high:.0%})", end="")
    print(f"\nmedian width {median(widths):.0f} points" if widths else "")
    for why, count in reasons.most_common():
        print(f"  {count} not measured: {why}")


def saved_of_baselines(study: dict[str, Any], each: dict[str, Any]) -> float | None:
    """Return the percentage that a proven setting saved of what the unchanged script took before
    anything was foretold; studies of before 2026-11-28 do not say it themselves."""
    if each["measured_pct"] is None:
        return None
    if each.get("of_foretold_pct") is not None:
        return float(each["of_foretold_pct"])
    runs = [trial for trial in study["trials"] if trial["step_ms"]]
    before = [trial["step_ms"] for trial in takewhile(lambda t: t["phase"] == "baseline", runs)]
    of = "proof", each["measured_with"]
    after = [trial["step_ms"] for trial in runs if (trial["phase"], trial["knobs"]) == of]
    return 100 * (1 - fmean(after) / fmean(before)) if before and after else None


def studies(places: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield the documents of studies at these places, each study once."""
    seen = set()
    for place in places:
        for file in sorted(place.rglob("*.json")) if place.is_dir() else [place]:
            try:
                document = json.loads(file.read_text("utf-8"))
            except ValueError:  # cut off, as where a study was killed
                continue
            if isinstance(document, dict) and "expectations" in document:
                key = (document["script"], document["started"])
                if key not in seen:
                    seen.add(key)
                    yield document


def row(study: dict[str, Any], each: dict[str, Any], measured: dict[str, float], how: str) -> str:
    """Return an expectation that was measured as a row of the table."""
    predicted = each["predicted_pct"]
    settings = ", ".join(f"{name}={value}" for name, value in each["measured_with"].items())
    ends = f"{measured['low']:.1f} to {measured['high']:.1f}"
    cells = (
        study["script"],
        study["device"]["name"] or "CPU",
        each["rule"],
        f"{predicted['low']:.0f} to {predicted['high']:.0f} %",
        f"{measured['value']:.1f} % ({ends}) by {settings}, {how}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
