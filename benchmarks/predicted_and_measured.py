"""What findings promised of scripts before `tune` tried anything, and what their knobs brought.

    python benchmarks/predicted_and_measured.py FOLDER_OR_FILE...

Reads what `gpuadvisor tune --json` wrote, each `study.json` and `*.json` below a folder, as
`hand_rows.py studies` keeps them. Prints a line an expectation, as Markdown, and how many of those
that were both estimated and measured lie inside. What was not measured is counted with its reason.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from scipy.stats import binomtest


def main() -> None:
    """Print the table of the studies that were named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("places", nargs="+", type=Path)
    inside, widths, reasons = [], [], Counter[str]()
    print("| script | GPU | finding | predicted | measured |\n| --- | --- | --- | --- | --- |")
    for study in studies(parser.parse_args().places):
        for each in study["expectations"]:
            predicted, measured = each["predicted_pct"], each["measured_pct"]
            if predicted is None or measured is None:
                reasons[each["why_not_measured"] or "no range was told"] += 1
                continue
            inside.append(bool(each["is_met"]))
            widths.append(predicted["high"] - predicted["low"])
            print(row(study, each))
    print(f"\n{sum(inside)} of {len(inside)} inside", end="")
    if inside:
        sure = binomtest(sum(inside), len(inside)).proportion_ci()
        print(
            f" (95 % interval {sure.low:.0%} to {sure.high:.0%}), {median(widths):.0f} points wide"
        )
    for why, count in reasons.most_common():
        print(f"  {count} not measured: {why}")


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


def row(study: dict[str, Any], each: dict[str, Any]) -> str:
    """Return an expectation that was measured as a row of the table."""
    predicted, measured = each["predicted_pct"], each["measured_pct"]
    told = f"{predicted['low']:.0f} to {predicted['high']:.0f} %"
    found = f"{measured['value']:.1f} % ({measured['low']:.1f} to {measured['high']:.1f})"
    missed = "" if each["is_met"] else ", **outside**"
    settings = ", ".join(f"{name}={value}" for name, value in each["measured_with"].items())
    cells = (
        study["script"],
        study["device"]["name"] or "CPU",
        each["rule"],
        told,
        f"{found} by {settings}{missed}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
