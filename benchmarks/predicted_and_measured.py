"""What findings promised of scripts before `tune` tried anything, and what their knobs brought.

    python benchmarks/predicted_and_measured.py FOLDER_OR_FILE...

Reads what `gpuadvisor tune --json` wrote, each `study.json` and `*.json` below a folder, as
`hand_rows.py studies` keeps them. Prints a line for each setting that was measured, as Markdown,
with all findings that it cures: whatever it saves is of all of them, which is at least what one
alone promises, and at most their sum. How many lie inside is counted by proof or ablation, and by
itself by blocks of steps of one running process. What neither measured is counted with its reason.

Both sides are percentages of the unchanged script's whole step. Blocks on a batch that is there
already compare the computing alone, which is less: a study tells it with `computing_ms`, one of
before 2026-11-30 with what the loader was timed for; where neither is told, all but the waiting.
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
        counted = set[tuple[str, bool]]()
        for each in study["expectations"]:
            proven = each.get("measured_pct")
            measured = proven or screened(study, each)
            if measured is None:
                reasons[each["why_not_measured"] or "no range was told"] += 1
                continue
            setting = json.dumps(each["measured_with"], sort_keys=True), proven is not None
            if setting in counted:
                continue
            counted.add(setting)
            cured = cured_by(each["measured_with"], study)
            if (predicted := together(cured)) is None:
                reasons[f"a finding it cures has no range: {rules(cured)}"] += 1
                continue
            how = "proven" if proven else "in one process"
            if measured.get("of_computing"):
                how = "in one process, on one batch"
            is_met = predicted["low"] <= measured["value"] <= predicted["high"]
            inside[how].append(is_met)
            if (share := saved_of_baselines(study, each)) is not None:
                how = f"{how}; {share:.1f} % of the runs that it was made from"
                inside[OF_BASELINES].append(predicted["low"] <= share <= predicted["high"])
            widths.append(predicted["high"] - predicted["low"])
            outside = "" if is_met else ", **outside**"
            print(row(study, cured, predicted, measured, settings_of(each) + how + outside))
    for how, met in inside.items():
        print(f"\n{how}: {sum(met)} of {len(met)} inside", end="")
        if met:
            sure = binomtest(sum(met), len(met)).proportion_ci()
            print(f" (95 % interval {sure.low:.0%} to {sure.high:.0%})", end="")
    print(f"\nmedian width {median(widths):.0f} points" if widths else "")
    for why, count in reasons.most_common():
        print(f"  {count} not measured: {why}")


def screened(study: dict[str, Any], each: dict[str, Any]) -> dict[str, float] | None:
    """Return what blocks of one running process saved of the whole step; None where none did.

    Studies that do not tell what was computed took all but the waiting for it.
    """
    told: dict[str, float] | None = each.get("screened_pct")
    if told is None or not told.get("of_computing") or study.get("computing_ms") is not None:
        return told
    rest_ms, step_ms = (study.get("supply") or {}).get("best_rest_ms"), study["baseline"]["step_ms"]
    if rest_ms is None:
        return told
    ratios = {(one["knob"], str(one["value"])): one["ratio"] for one in study["screened"]}
    computing_ms = rest_ms  # with what was kept, each measured beside the others
    for one in study["screened"]:
        if one["state"] == "kept" and one["of_computing"]:
            computing_ms *= one["ratio"]["ratio"]
    ((knob, value),) = each["measured_with"].items()
    found = next(one for one in study["screened"] if (one["knob"], one["value"]) == (knob, value))
    left = 100 * computing_ms / step_ms["mean"]
    for setting, at in found["beside"].items():
        left /= ratios[setting, str(at)]["ratio"]
    ends = (("value", "ratio"), ("low", "ci99_low"), ("high", "ci99_high"))
    saved = {end: left * (1 - 1 / found["ratio"][name]) for end, name in ends}
    return {**saved, "of_computing": told["of_computing"]}


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


def cured_by(settings: dict[str, Any], study: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the expectations of a study that have one of these settings among their cures."""
    return [each for each in study["expectations"] if not settings.keys().isdisjoint(each["knobs"])]


def together(cured: list[dict[str, Any]]) -> dict[str, float] | None:
    """Return what curing all of these saves, at least and at most; None where one has no range."""
    known = [each["predicted_pct"] for each in cured]
    if not known or None in known:
        return None
    high = sum(each["high"] for each in known)
    return {"low": max(each["low"] for each in known), "high": min(high, 100.0)}


def rules(cured: list[dict[str, Any]]) -> str:
    """Return the names of findings."""
    return ", ".join(each["rule"] for each in cured)


def settings_of(each: dict[str, Any]) -> str:
    """Return the settings with which an expectation was measured, as the start of a clause."""
    return ", ".join(f"{name}={value}" for name, value in each["measured_with"].items()) + ", "


def row(
    study: dict[str, Any],
    cured: list[dict[str, Any]],
    predicted: dict[str, float],
    measured: dict[str, float],
    how: str,
) -> str:
    """Return what was expected of a setting and what it brought as a row of the table."""
    ends = f"{measured['low']:.1f} to {measured['high']:.1f}"
    cells = (
        study["script"],
        study["device"]["name"] or "CPU",
        rules(cured),
        f"{predicted['low']:.0f} to {predicted['high']:.0f} %",
        f"{measured['value']:.1f} % ({ends}) by {how}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
