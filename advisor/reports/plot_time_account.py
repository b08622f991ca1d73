"""Plot: where each device's time went, a bar a device."""

from __future__ import annotations

from collections.abc import Mapping

from gpuadvisor.reports import figures, svg
from gpuadvisor.reports.markup import Markup, element
from gpuadvisor.reports.profile_wording import PARTS
from gpuadvisor.rules.facts.time_breakdown import TimeBreakdown, TimeCategory

MOST_BARS = 16
_BAR, _GAP, _TITLE, _AXIS = 30, 14, 18, 22
_LABEL_FROM = 44
"""Pixels: a narrower part has no room for its number."""


def plot_time_account(accounts: Mapping[int, TimeBreakdown], width: float) -> Markup:
    """Return a stacked bar for each device, 0 to 100 % of its own time."""
    shown = list(accounts.items())[:MOST_BARS]
    row = _BAR + _GAP + (_TITLE if len(shown) > 1 else 0)
    height = row * len(shown) + _AXIS
    x = svg.Scale(0, 1, 0, width)
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = {0.0: "start", 1.0: "end"}.get(share, "middle")
        parts.append(svg.line(x(share), 0, x(share), height - _AXIS, "grid"))
        parts.append(svg.label(x(share), height - 6, f"{share * 100:.0f} %", "tick", anchor))
    for place, (device, account) in enumerate(shown):
        top = row * place
        if len(shown) > 1:
            words = f"GPU {device}, {figures.milliseconds(account.span_ns / 1e6)}"
            parts.append(svg.label(0, top + 13, words, "halo"))
            top += _TITLE
        parts += _bar(account, top, x)
    described = "; ".join(
        f"GPU {device}: "
        + ", ".join(f"{PARTS[part]} {figures.percent(share)}" for part, share in _shares(each))
        for device, each in shown
    )
    return svg.canvas("account", width, height, "Where the time goes", described, *parts)


def _shares(account: TimeBreakdown) -> list[tuple[TimeCategory, float]]:
    return [(part, account.share(part)) for part in TimeCategory if account.parts_ns[part] > 0]


def _bar(account: TimeBreakdown, top: float, x: svg.Scale) -> list[Markup]:
    parts, done = [], 0.0
    for part, share in _shares(account):
        left, right = x.clamp(done), x.clamp(done + share)
        done += share
        title = element("title", f"{PARTS[part]}: {figures.percent(share)}")
        parts.append(
            element(
                "rect",
                title,
                x=left,
                y=float(top),
                width=max(right - left, 0.3),
                height=_BAR,
                class_=f"part {part}",
            )
        )
        if right - left >= _LABEL_FROM:
            middle = (left + right) / 2
            words = f"{share * 100:.0f} %"
            parts.append(svg.label(middle, top + _BAR / 2 + 5, words, "on-part", "middle"))
    return parts
