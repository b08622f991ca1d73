"""The time that the page of charts shows, what it asks of the past, and the lines that it makes of
the answer."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuadvisor.daemon.past import Past
from gpuadvisor.domain.metrics import BY_NAME, GPU_METRICS, HOST_METRICS, Kind, Metric
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import HOST, Event
from gpuadvisor.domain.timeline import Column, Timeline, TimelineRequest
from gpuadvisor.printable import duration
from gpuadvisor.tui.watch import cells, plot
from gpuadvisor.tui.watch.cells import SEVERITY_STYLES, Line, Style

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
SPANS_S = (MINUTE_S, 10 * MINUTE_S, HOUR_S, 6 * HOUR_S, DAY_S, 7 * DAY_S, 30 * DAY_S)
"""Lengths of a chart."""
STEP_BACK = 0.5
"""Share of its length by which one steps back and forward."""
MOST_EVENTS = 2000
"""Events of a span that are looked at: the newest."""
LOOKED_AT = 500
"""Events before a time among which the one is looked for that is worth a look."""
LEAST_LABELS = 40
"""Characters of a page from which on a chart has a scale at its left."""
LETTERS = {0: "i", 1: "i", 2: "W", 3: "E"}
"""What marks an event, by the rank of its severity."""
ALL_OF_THEM = ": Enter shows all"
"""Ends the line that counts the events that do not fit."""
FULL_PCT = 100.0
TOPS = {
    "memory_used_bytes": "memory_total_bytes",
    "host_memory_used_bytes": "host_memory_total_bytes",
}
"""The metric that is the highest possible value of another."""


def shortest(length_s: float) -> float:
    """Return the shortest length of a chart that has so many seconds in it."""
    return next((span_s for span_s in SPANS_S if span_s >= length_s), SPANS_S[-1])


@dataclass
class Window:
    """A span of time that ends now, or where somebody has put it; `now_s` is told each time."""

    span_s: float
    until_s: float | None = None
    """Unix time at which it ends; None: now."""
    cursor_s: float | None = None
    """Unix time of the cursor; None where there is none."""

    def move_to(self, time_s: float, now_s: float, *, in_the_middle: bool = False) -> None:
        """Move the cursor there, and the window as far as it takes to see it."""
        self.freeze(now_s)
        self.cursor_s = min(time_s, now_s)
        self._show_cursor(now_s, in_the_middle)

    def step(self, way: int, now_s: float) -> None:
        """Step back (-1) or forward (1), with the cursor."""
        self.freeze(now_s)
        assert self.until_s is not None
        by_s = way * STEP_BACK * self.span_s
        self.until_s += by_s
        if self.cursor_s is not None:
            self.cursor_s = min(self.cursor_s + by_s, now_s)
        if self.until_s >= now_s:
            self.until_s = None

    def zoom(self, by: int, now_s: float) -> None:
        """Make it shorter (-1) or longer (1), around the cursor if there is one."""
        nearest = min(
            range(len(SPANS_S)), key=lambda n: abs(math.log(SPANS_S[n] / max(self.span_s, 1.0)))
        )
        self.span_s = SPANS_S[min(max(nearest + by, 0), len(SPANS_S) - 1)]
        if self.cursor_s is not None:
            self._show_cursor(now_s, in_the_middle=True)

    def follow(self) -> None:
        """Show what is now, without a cursor."""
        self.until_s = self.cursor_s = None

    def freeze(self, now_s: float) -> None:
        """Have it end where it does now."""
        if self.until_s is None:
            self.until_s = now_s

    def _show_cursor(self, now_s: float, in_the_middle: bool) -> None:
        assert self.cursor_s is not None
        until_s = now_s if self.until_s is None else self.until_s
        if in_the_middle or not until_s - self.span_s <= self.cursor_s < until_s:
            self.until_s = min(self.cursor_s + self.span_s / 2, now_s)


@dataclass(frozen=True)
class Series:
    """What is drawn: a device, and by how much earlier than the page's time."""

    device: str
    back_s: float = 0.0


@dataclass(frozen=True)
class Question:
    """What is to be drawn."""

    metric: str
    series: tuple[Series, ...]
    since_s: float
    until_s: float
    columns: int
    now_s: float


@dataclass(frozen=True)
class Chart:
    """The answer."""

    timelines: tuple[Timeline, ...]
    events: tuple[tuple[Event, ...], ...]
    """The events in the time of each, the oldest first."""
    begins_s: float | None
    """Unix time from which on anything is known; None where nothing is."""
    ends_s: float | None
    """Unix time of what is newest."""
    names: Mapping[str, str]
    """What each device is called."""


def answered(past: Past, question: Question) -> Chart:
    """Return the answer; StoreError where a file fails."""
    timelines, events = [], []
    for each in question.series:
        since_s, until_s = question.since_s - each.back_s, question.until_s - each.back_s
        asked = question.metric, [each.device], since_s, until_s, question.columns
        found = past.timelines(TimelineRequest(*asked, question.now_s))
        timelines.append(found[each.device])
        events.append(tuple(of_device(past.events(since_s, until_s, MOST_EVENTS), each.device)))
    span = past.span()
    labels = cells.labels(past.all_gpus())
    names = {HOST: "host", **{uuid: f"GPU {number}" for uuid, number in labels.items()}}
    return Chart(tuple(timelines), tuple(events), span and span[0], span and span[1], names)


def known_since(chart: Chart, question: Question) -> float | None:
    """Return the Unix time of the first column with a value, as exactly as columns are long; where
    none has one, from when on anything is known. None where nothing is, before the span's end."""
    if chart.begins_s is None or chart.begins_s >= question.until_s:
        return None
    timeline, begins_s = chart.timelines[0], max(chart.begins_s, question.since_s)
    place = next((n for n, column in enumerate(timeline.columns) if column is not None), 0)
    return max(timeline.begin_s + place * timeline.step_s, begins_s)


def of_device(events: Iterable[Event], device: str) -> list[Event]:
    """Return the events of a GPU and of the machine; of HOST all, as it has all GPUs."""
    return [each for each in events if device == HOST or each.gpu in (None, device)]


def next_trouble(past: Past, way: int, from_s: float) -> Event | None:
    """Return the event before (-1) or after (1) a Unix time, a warning or error if there is one;
    StoreError where a file fails."""
    if way < 0:
        found = past.events(0.0, from_s, LOOKED_AT)
        before = _troubles([each for each in found if each.began_s < from_s])
        return before[-1] if before else None
    after = _troubles([each for each in past.events(from_s) if each.began_s > from_s])
    return after[0] if after else None


def _troubles(events: Sequence[Event]) -> Sequence[Event]:
    return [each for each in events if each.severity.rank >= Severity.WARNING.rank] or events


def metrics() -> list[tuple[str, str]]:
    """Return the metrics by name, each in words with its unit."""
    return [
        (each.name, f"{each.help}{f' ({each.unit})' if each.unit else ''}{where}")
        for listed, where in ((GPU_METRICS, ""), (HOST_METRICS, ", of the machine"))
        for each in listed
    ]


def is_of_host(metric: str) -> bool:
    """Say whether a metric is the machine's."""
    return BY_NAME[metric] in HOST_METRICS


# -- texts -----------------------------------------------------------------------------------------


def moment_text(time_s: float, step_s: float = 1.0) -> str:
    """Return a Unix time with its day, as exactly as columns of that length are."""
    form = "%a %d %b %H:%M:%S" if step_s < 60 else "%a %d %b %H:%M"
    return datetime.fromtimestamp(time_s).strftime(form)


def span_text(begin_s: float, step_s: float) -> str:
    """Return the time of a column."""
    end = datetime.fromtimestamp(begin_s + step_s)
    last = end.strftime("%H:%M:%S" if step_s < 60 else "%H:%M")
    if step_s < 1:
        return moment_text(begin_s)
    return f"{moment_text(begin_s, step_s)} - {last}"


def value_text(metric: Metric, column: Column | None) -> str:
    """Return what was read in a column, in words."""
    if column is None:
        return "not measured"
    missing = f", {duration(column.missing_s)} not measured" if column.missing_s >= 1 else ""
    if metric.kind is Kind.COUNTER:
        return f"+{cells.full(metric, column.high)}{missing}"
    if metric.kind is Kind.BITMASK:
        return f"{cells.full(metric, column.high)}{missing}"
    mean = cells.full(metric, column.mean)
    if column.low == column.high:
        return f"{mean}{missing}"
    low, high = cells.full(metric, column.low), cells.full(metric, column.high)
    return f"mean {mean}, {low} to {high}{missing}"


# -- lines -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawing:
    """How charts are drawn on a page."""

    width: int
    height: int
    """Lines for all charts."""
    glyphs: plot.Glyphs
    fits: bool = False
    """Whether the scale is from the least to the greatest value, not from zero."""

    @property
    def has_labels(self) -> bool:
        return self.width >= LEAST_LABELS

    @property
    def label_width(self) -> int:
        return 11 if self.has_labels else 0

    @property
    def plot_width(self) -> int:
        return max(self.width - self.label_width, 1)

    @property
    def columns(self) -> int:
        """Columns that can be told apart."""
        return max(self.plot_width * self.glyphs.across - 1, 1)


def lines(
    chart: Chart, question: Question, drawing: Drawing, cursor_s: float | None, top: float | None
) -> list[Line]:
    """Return the charts, one above the other on the same scale, each with its title, its time and
    what is under the cursor. `top` is the highest value that the metric can have, if that is known.
    """
    bottom, highest = _scale(BY_NAME[question.metric], chart.timelines, top, drawing.fits)
    count = len(chart.timelines)
    made: list[Line] = []
    for place, series in enumerate(question.series):
        height = drawing.height // count + (place < drawing.height % count)
        made += _chart(chart, question, place, series, height, drawing, cursor_s, bottom, highest)
    return made


def _chart(
    chart: Chart,
    question: Question,
    number: int,
    series: Series,
    height: int,
    drawing: Drawing,
    cursor_s: float | None,
    bottom: float,
    top: float,
) -> list[Line]:
    metric, timeline = BY_NAME[question.metric], chart.timelines[number]
    place = None
    if cursor_s is not None:
        place = plot.place_of(timeline, cursor_s - series.back_s)
    name = chart.names.get(series.device, series.device[-8:])
    shown = place if place is not None else _newest(timeline)
    whole = f"{moment_text(timeline.begin_s, 60)} - {moment_text(timeline.end_s, 60)}"
    at_s = None if shown is None else timeline.begin_s + shown * timeline.step_s
    when = whole if at_s is None else span_text(at_s, timeline.step_s)
    value = "nothing was measured" if shown is None else value_text(metric, timeline.columns[shown])
    made: list[Line] = [
        _fit(
            [(f"{name}  ", Style.TITLE), (f"{when}  ", Style.QUIET), (value, Style.PLAIN)], drawing
        )
    ]
    pad = (" " * drawing.label_width, Style.PLAIN)
    extras = [
        [pad, (plot.axis(timeline, drawing.plot_width, place, drawing.glyphs), Style.QUIET)],
        [pad, (plot.ticks(timeline, drawing.plot_width), Style.QUIET)],
        _marks(chart.events[number], timeline, drawing),
    ]
    extras = extras[: max(min(len(extras), height - 2), 0)]
    room = max(height - 1 - len(extras), 0)
    if metric.kind is Kind.BITMASK:
        made += _lanes(timeline, room, drawing, place)
    elif room:
        drawn = plot.graph(
            timeline, drawing.plot_width, room, bottom, top, cursor=place, glyphs=drawing.glyphs
        )
        made += [
            [*_label(metric, n, room, bottom, top, drawing), *row] for n, row in enumerate(drawn)
        ]
    return (made + extras)[:height]


def _newest(timeline: Timeline) -> int | None:
    places = [place for place, column in enumerate(timeline.columns) if column is not None]
    return places[-1] if places else None


def _scale(
    metric: Metric, timelines: Sequence[Timeline], top: float | None, fits: bool
) -> tuple[float, float]:
    known = [column for each in timelines for column in each.columns if column is not None]
    high = max((column.high for column in known), default=0.0)
    low = min((column.low for column in known), default=0.0)
    if fits and high > low:
        return low, high
    bottom = min(low, 0.0)
    if metric.unit == "%" and high <= FULL_PCT:
        return bottom, FULL_PCT
    if top is not None and high <= top:
        return bottom, top
    unit = 2.0**30 if metric.unit == "bytes" else 1.0
    return bottom, plot.nice_top(high / unit) * unit


def _label(
    metric: Metric, row: int, rows: int, bottom: float, top: float, drawing: Drawing
) -> list[tuple[str, Style]]:
    if not drawing.has_labels:
        return []
    at = {rows - 1: bottom, rows // 2: (bottom + top) / 2, 0: top} if rows > 2 else {0: top}
    text = cells.full(metric, at[row]) if row in at else ""
    width = drawing.label_width - 1
    return [(f"{text[:width]:>{width}} ", Style.QUIET)]


def _lanes(timeline: Timeline, room: int, drawing: Drawing, place: int | None) -> list[Line]:
    found = plot.lanes(timeline, drawing.plot_width, cursor=place, glyphs=drawing.glyphs)
    width = drawing.label_width
    made: list[Line] = [
        [(f"{name[: width - 1]:<{width}}" if width else "", Style.QUIET), *row]
        for name, row in found
    ]
    if not made:
        said = "nothing was measured" if timeline.is_empty else "nothing held the clocks down"
        made = [[(" " * width + said, Style.QUIET)]]
    blank: Line = [("", Style.PLAIN)]
    return (made + [blank] * room)[:room]


def _marks(events: Sequence[Event], timeline: Timeline, drawing: Drawing) -> Line:
    spans = [(event.began_s, event.ended_s, event.severity.rank) for event in events]
    made = plot.marks(spans, timeline, drawing.plot_width, LETTERS)
    styles = {each.rank: style for each, style in SEVERITY_STYLES.items()}
    width = drawing.label_width
    label = (f"{'events':<{width}}" if width else "", Style.QUIET)
    return [label, *plot.joined((mark, styles.get(rank, Style.PLAIN)) for mark, rank in made)]


def _fit(line: list[tuple[str, Style]], drawing: Drawing) -> Line:
    """Return as much of the line as fits, the value before its time."""
    name, _, value = line
    if sum(len(text) for text, _ in line) > drawing.width:
        return [name, (cells.fit([value[0]], drawing.width - len(name[0])), value[1])]
    return line


IsSeen = Callable[[Event], bool]
"""Tells of an event without an end whether it is known to last."""


def event_lines(
    events: Sequence[Event], names: Mapping[str, str], width: int, most: int, is_seen: IsSeen
) -> list[Line]:
    """Return a line for each of the newest events, the newest first."""
    made: list[Line] = []
    found = newest(events)
    for event in found[:most]:
        text = cells.fit([event_text(event, names, is_seen)], width)
        made.append([(text, SEVERITY_STYLES.get(event.severity, Style.PLAIN))])
    if len(found) > most > 0:
        made[-1] = [(f"and {len(found) - most + 1} more{ALL_OF_THEM}", Style.QUIET)]
    return made


def newest(events: Iterable[Event]) -> list[Event]:
    """Return the newest first, and of those that began at one time the worst."""
    return sorted(events, key=lambda each: (each.began_s, each.severity.rank), reverse=True)


def event_text(event: Event, names: Mapping[str, str], is_seen: IsSeen) -> str:
    """Return all of an event in one line: how bad it is, when it began, how long it lasted."""
    lasted_s = None if event.ended_s is None else event.ended_s - event.began_s
    where = "host" if event.gpu is None else names.get(event.gpu, event.gpu[-8:])
    how_long = cells.age(lasted_s) if lasted_s is not None and lasted_s >= 1 else ""
    if lasted_s is None:
        how_long = "lasts" if is_seen(event) else "lasts?"
    said = event.message if event.message.startswith(where) else f"{where}: {event.message}"
    when = moment_text(event.began_s)
    return f"{LETTERS[event.severity.rank]} {when} {how_long:>6}  {said}"


def whole_events(
    events: Iterable[Event], names: Mapping[str, str], width: int, is_seen: IsSeen
) -> list[Line]:
    """Return events to read, the newest first: all of each, with what to do about it."""
    made: list[Line] = []
    for event in newest(events):
        where = "host" if event.gpu is None else names.get(event.gpu, event.gpu)
        lasted_s = None if event.ended_s is None else event.ended_s - event.began_s
        how_long = f", {duration(lasted_s)}" if lasted_s is not None and lasted_s >= 1 else ""
        if lasted_s is None:
            how_long = ", lasts" if is_seen(event) else ", lasted when it was read last"
        kind = event.kind.replace("_", " ")
        head = f"{moment_text(event.began_s)}{how_long}  {event.severity}  {where}  {kind}"
        style = SEVERITY_STYLES.get(event.severity, Style.PLAIN)
        made += [[(line, style)] for line in textwrap.wrap(head, max(width, 10))]
        said = textwrap.wrap(event.message, max(width, 10), break_on_hyphens=False)
        made += [[(line, Style.PLAIN)] for line in said]
        made.append([])
    return made


def step_text(step_s: float) -> str:
    """Return the length of a column in words."""
    return f"{step_s:g} s" if step_s < 60 or math.isclose(step_s % 60, 30) else duration(step_s)
