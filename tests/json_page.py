"""What `docs/json.md` says of each document, and which fields a document has."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "json.md"
OPEN = {
    "best.knobs",
    "counted[].units",
    "diagnosis",
    "expectations[].measured_with",
    "no_effect",
    "not_measured",
    "rehearsal.knobs",
    "rehearsal.not_covered",
    "screened[].beside",
    "supply.settings",
    "supply.values[].settings",
    "time[].parts_ns",
    "trials[].knobs",
    "untried",
}
"""Objects whose keys are explained in their own row, as are names of knobs."""


def leaves(value, prefix=""):
    """Every field of a document with its value: `steps.count`, `kernels[].name`."""
    for key, each in value.items():
        path = f"{prefix}{key}"
        yield path, each
        if isinstance(each, dict) and path not in OPEN:
            yield from leaves(each, f"{path}.")
        if isinstance(each, list):
            for item in each:
                if isinstance(item, dict):
                    yield from leaves(item, f"{path}[].")


def documented(title):
    """Field to its row's cells, from the tables of a part of the page."""
    part = f"\n{PAGE.read_text('utf-8')}".partition(f"\n# {title}\n")[2].partition("\n# ")[0]
    rows = re.findall(r"^\| `([^`]+)` \|(.+)\|$", part, re.MULTILINE)
    return {field: [cell.strip() for cell in cells.split("|")] for field, cells in rows}
