"""Any metric over time, what was at a moment, and what happened: back to the store's first day."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from gpuadvisor.domain.metrics import BY_NAME
from gpuadvisor.domain.telemetry import HOST, Event
from gpuadvisor.printable import duration
from gpuadvisor.tui.watch import charting, plot, then
from gpuadvisor.tui.watch.asking import Asker
from gpuadvisor.tui.watch.cells import Line, Style
from gpuadvisor.tui.watch.charting import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    Chart,
    Drawing,
    Question,
    Series,
    Window,
    shortest,
)
from gpuadvisor.tui.watch.lines import Lines
from gpuadvisor.tui.watch.page import Page
from gpuadvisor.tui.watch.table import text_of
from gpuadvisor.tui.watch.watched import START

if TYPE_CHECKING:
    from gpuadvisor.daemon.past import Past
    from gpuadvisor.domain.moment import Moment

STORED_S, LIVE_S = DAY_S, 10 * MINUTE_S
"""The most that is shown at first: of a store, and without one."""
SHOWN_SHARE = 0.9
"""Share of what is known that a first look must have: it is known to the minute only. [own]"""
LEAST_CHART, CHART_SHARE, TWO_SHARE = 5, 0.55, 0.7
"""Lines of the charts, and the share of the page that one has, and two, where it is higher."""
RENEWED_SHARE, LONGEST_OLD_S = 0.05, 60.0
"""Share of a column's time after which a chart that ends now is read again, but for each second;
and the longest such time, in seconds: 30 days of eight GPUs take 0.2 s."""
RETRY_S = 5.0
"""Time after which what has failed is tried again."""
EARLIER = (("an hour before", HOUR_S), ("a day before", DAY_S), ("a week before", 7 * DAY_S))
AN_HOUR = re.compile(r"[01]?\d|2[0-3]", re.ASCII)
"""A number that one types as a time: 14 is 14:00."""


class Answered(Message):
    """A question of the page has its answer."""


class Charts(Page):
    """One chart, or two to compare, above what was at the cursor."""

    KEY = "3"
    NAME = "charts"
    ABOUT = (
        "Any metric over time. The line is the mean, its shade goes from the least to the greatest;"
        " what is blank was not measured."
    )
    DEFAULT_CSS = """
    #chart { height: auto; }
    #then { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "event(-1)", "event", tooltip="go to the warning or error before; E: after"),
        Binding("E", "event(1)", show=False),
        Binding(
            "enter",
            "read",
            "read",
            key_display="Enter",
            tooltip="all of the events that are listed; a click: of one",
        ),
        Binding("m", "metric", "metric", tooltip="choose what is drawn"),
        Binding("plus,equals_sign", "span(-1)", "", key_display="+", show=False),
        Binding(
            "minus",
            "span(1)",
            "span",
            key_display="+ -",
            tooltip="shorter or longer: 1 min to 30 d",
        ),
        Binding(
            "g",
            "go",
            "go to",
            tooltip="go to a time: 14, 14:02, 17 min ago, yesterday 03:00, last night",
        ),
        Binding("c", "compare", "compare", tooltip="with another GPU, or an earlier time"),
        Binding("left", "cursor(-1)", "cursor", key_display="← →", tooltip="move the cursor"),
        Binding("right", "cursor(1)", show=False),
        Binding(
            "shift+left",
            "step(-1)",
            "back",
            key_display="⇧← ⇧→",
            tooltip="step back, or forward, by half of the chart",
        ),
        Binding("shift+right", "step(1)", show=False),
        Binding("end", "now", "now", key_display="End", tooltip="back to now"),
        Binding("up", "gpu(-1)", "GPU", key_display="↑ ↓", tooltip="another GPU"),
        Binding("down", "gpu(1)", show=False),
        Binding("z", "fit", "fit", tooltip="scale from the least to the greatest, or from zero"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._metric = "gpu_utilization_pct"
        self._window: Window | None = None
        """None until a key has changed it."""
        self._known_s: float | None = None
        """Unix time from which on something is known, within what was asked first."""
        self._known_of: tuple[str, tuple[Series, ...]] | None = None
        """The metric and devices of which that is told."""
        self._other: Series | None = None
        """What is compared: another device, or the same by so much earlier."""
        self._fits = False
        self._ways: list[int] = []
        """Which way to go to the next event, for each key that waits."""
        self._kept: Past | None = None
        self._charts = Asker(self._read_chart, lambda: self.post_message(Answered()))
        self._moments = Asker(self._read_moment, lambda: self.post_message(Answered()))
        self._jumps = Asker(self._read_event, lambda: self.post_message(Answered()))
        self._failed_s = 0.0
        self._drawn: object = None
        self._lines: list[Line] = []
        """The charts as they were drawn last, and of what."""

    def compose_page(self) -> ComposeResult:
        yield Lines("chart")
        yield Lines("then")

    def on_answered(self) -> None:
        if self._ways and self._jumps.question is not None and not self._jumps.is_busy:
            self._land()
        self.draw()

    # -- what is asked -------------------------------------------------------------------------

    def _past(self) -> Past:
        """Return where the past is; called in a thread, as a recording takes its time."""
        if self._kept is None:
            self._kept = self.watched.past()
        return self._kept

    def _read_chart(self, question: Question) -> Chart:
        return charting.answered(self._past(), question)

    def _read_moment(self, time_s: float) -> Moment:
        return self._past().moment(time_s)

    def _read_event(self, question: tuple[int, float]) -> Event | None:
        return charting.next_trouble(self._past(), *question)

    @property
    def _now_s(self) -> float:
        """Unix time of what is watched: of a recording its end, as all of it is known."""
        chart = self._charts.answer
        if self.watched.recording is not None and chart is not None and chart.ends_s is not None:
            return chart.ends_s
        return self.watched.state.now_s

    @property
    def window(self) -> Window:
        """What is shown, and where the cursor is: until a key changes it, what is known of the
        longest span that a first look has."""
        return self._window or Window(self._first_span_s)

    def _moved(self) -> Window:
        """Return the window for a key to change: from then on it stays as keys put it."""
        self._window = self.window
        return self._window

    @property
    def _first_span_s(self) -> float:
        watched = self.watched
        is_stored = watched.store is not None or watched.remote is not None
        most_s = STORED_S if is_stored else LIVE_S
        if self._known_s is None:
            return most_s
        known_s = shortest(SHOWN_SHARE * (self._now_s - self._known_s))
        return known_s if watched.recording is not None else min(known_s, most_s)

    @property
    def _device(self) -> str:
        if charting.is_of_host(self._metric):
            return HOST
        chosen = self.watched.chosen
        return self.watched.gpu or (chosen.uuid if chosen else HOST)

    def _series(self) -> tuple[Series, ...]:
        """Return what is drawn: one, or two that are compared."""
        one, other = Series(self._device), self._other
        if other is None:
            return (one,)
        if other.device == HOST:
            return (one, Series(self._device, other.back_s))
        return (one,) if charting.is_of_host(self._metric) else (one, other)

    def _question(self, drawing: Drawing) -> Question:
        window = self.window
        every_s = min(max(window.span_s / drawing.columns * RENEWED_SHARE, 1.0), LONGEST_OLD_S)
        now_s = math.floor(self._now_s / every_s) * every_s
        until_s = now_s if window.until_s is None else window.until_s
        return Question(
            self._metric,
            self._series(),
            until_s - window.span_s,
            until_s,
            drawing.columns,
            max(now_s, until_s),
        )

    # -- what is drawn -------------------------------------------------------------------------

    def draw(self) -> None:
        self._learn()
        width = self.size.width
        body = max(self.size.height - self._around, 1)
        count = len(self._series())
        share = CHART_SHARE if count == 1 else TWO_SHARE
        height = body if body <= LEAST_CHART + 1 else max(int(body * share), LEAST_CHART)
        drawing = Drawing(width, max(height - 1, 1), self._glyphs, self._fits)
        question = self._question(drawing)
        if self._charts.error is not None and time.monotonic() - self._failed_s >= RETRY_S:
            self._failed_s = time.monotonic()
            self._charts.forget()
        self._charts.ask(question)
        if self.window.cursor_s is not None:
            self._moments.ask(self.window.cursor_s)
        chart = self._charts.answer
        head = self._title(question, chart)
        if chart is None or self._charts.error is not None or len(chart.timelines) != count:
            self.query_one("#chart", Lines).show([head, *self._instead()])
            self.query_one("#then", Lines).show([])
            return
        asked = self._charts.question or question
        drawn = (asked, drawing, self.window.cursor_s, self._top)
        if drawn != self._drawn:  # it is drawn each second, and some 10 ms of work
            self._drawn = drawn
            self._lines = charting.lines(chart, *drawn)
        self.query_one("#chart", Lines).show([head, *self._lines])
        self.query_one("#then", Lines).show(self._below(chart, width, body - height))

    def _learn(self) -> None:
        """Take from the answers since when something is known, of what was drawn first: the shorter
        the span, the more exactly they tell. Of a recording all is known at once."""
        chart, asked = self._charts.answer, self._charts.question
        if chart is None or asked is None or self._window is not None:
            return
        drawn = asked.metric, asked.series
        if self.watched.recording is not None:
            self._known_s = chart.begins_s
        elif self._known_s is None:
            self._known_s, self._known_of = charting.known_since(chart, asked), drawn
        elif drawn == self._known_of and asked.since_s <= self._known_s:
            self._known_s = max(charting.known_since(chart, asked) or 0.0, self._known_s)

    def _instead(self) -> list[Line]:
        if self._charts.error is not None:
            return [[(str(self._charts.error), Style.WARNING)]]
        remote = self.watched.remote
        read = "The recording is read" if self.watched.recording else "The store is read"
        return [[(f"{remote.host.name} is asked ..." if remote else f"{read} ...", Style.QUIET)]]

    def _below(self, chart: Chart, width: int, height: int) -> list[Line]:
        if self.window.cursor_s is None:
            known = self._known(chart)
            room = max(height - 1 - len(known), 0)
            lines = charting.event_lines(chart.events[0], chart.names, width, room, self._is_seen)
            said = "Events of this time; e goes to the newest:" if lines else "No event then."
            return [*known, [(said, Style.TITLE)], *lines]
        if self._moments.error is not None:
            return [[(str(self._moments.error), Style.WARNING)]]
        moment = self._moments.answer
        if moment is None or self._moments.question != self.window.cursor_s:
            return [[(f"At {charting.moment_text(self.window.cursor_s)} ...", Style.TITLE)]]
        return then.lines(
            moment, self._device, chart.names, width, height, self._now_s, self._is_seen
        )

    def _known(self, chart: Chart) -> list[Line]:
        """Return since when anything is known, where the chart begins before."""
        since_s = self._charts.question.since_s if self._charts.question else math.inf
        if chart.begins_s is None or chart.begins_s <= since_s:
            return []
        said = f"Nothing is known of before {charting.moment_text(chart.begins_s)}."
        watched = self.watched
        if watched.store is None and watched.recording is None and watched.remote is None:
            said += f" `{START}` keeps 90 days."
        return [[(said, Style.QUIET)]]

    def _title(self, question: Question, chart: Chart | None) -> Line:
        metric = BY_NAME[self._metric]
        until_s = self.window.until_s
        ends = "" if until_s is None else f" to {charting.moment_text(until_s, 60)}"
        step = ""
        if chart is not None and chart.timelines:
            step = f", {charting.step_text(chart.timelines[0].step_s)} a column"
        said = f"  {duration(self.window.span_s)}{ends}{step}"
        room = max(self.size.width - len(metric.help), 0)
        return [(metric.help, Style.TITLE), (said[:room], Style.QUIET)]

    @property
    def _around(self) -> int:
        """Lines of the page that are not the charts'."""
        return sum(self.query_one(f"#{name}").region.height for name in ("head", "notice", "keys"))

    @property
    def _glyphs(self) -> plot.Glyphs:
        return plot.PLAIN if os.environ.get("TERM") in ("linux", "dumb") else plot.DOTTED

    @property
    def _top(self) -> float | None:
        """The highest value that the metric can have, where something tells it."""
        limit = charting.TOPS.get(self._metric)
        return self.watched.state.latest.value(self._device, limit) if limit else None

    def _is_seen(self, event: Event) -> bool:
        """Return whether an event without an end is known to last; all of a recording is known."""
        return self.watched.recording is not None or self.watched.state.is_seen(event)

    # -- keys ----------------------------------------------------------------------------------

    @property
    def _listed(self) -> list[Event]:
        """Return the events that are listed, the newest first."""
        chart, moment = self._charts.answer, self._moments.answer
        if self.window.cursor_s is None:
            return charting.newest(chart.events[0]) if chart and chart.events else []
        if moment is None or self._moments.question != self.window.cursor_s:
            return []
        return charting.newest(charting.of_device(moment.events, self._device))

    def action_read(self) -> None:
        """Show all of the events that are listed."""
        self._read(self._listed)

    def on_lines_chosen(self, message: Lines.Chosen) -> None:
        """Show all of the event that was clicked on."""
        chart, listed = self._charts.answer, self._listed
        if message.lines.id != "then" or chart is None:
            return
        (clicked,) = message.lines.texts(message.number, message.number + 1)
        for event in listed:
            (line,) = charting.event_lines([event], chart.names, self.size.width, 1, self._is_seen)
            if text_of(line) == clicked:
                self._read([event])
                return
        if clicked.endswith(charting.ALL_OF_THEM):
            self._read(listed)

    def _read(self, listed: Sequence[Event]) -> None:
        from gpuadvisor.tui.watch.dialogs import Reading

        chart = self._charts.answer
        if chart is None or not listed:
            self._watch.say("No event is listed here: e goes to the one before.")
            return
        title = "the event" if len(listed) == 1 else f"{len(listed)} events"
        make = partial(charting.whole_events, listed, chart.names, is_seen=self._is_seen)
        self.app.push_screen(Reading(title, make))

    def action_cursor(self, by: int) -> None:
        chart = self._charts.answer
        if chart is not None and chart.timelines:
            timeline, cursor_s = chart.timelines[0], self.window.cursor_s
            at = timeline.end_s if cursor_s is None else cursor_s
            place = math.floor((at - timeline.begin_s) / timeline.step_s) + by
            self._moved().move_to(timeline.begin_s + (place + 0.5) * timeline.step_s, self._now_s)
            self.draw()

    def action_step(self, way: int) -> None:
        self._moved().step(way, self._now_s)
        self.draw()

    def action_now(self) -> None:
        self._moved().follow()
        self.draw()

    def action_span(self, by: int) -> None:
        self._moved().zoom(by, self._now_s)
        self.draw()

    def action_gpu(self, by: int) -> None:
        gpus = [gpu.uuid for gpu in self.watched.state.gpus]
        if gpus and not charting.is_of_host(self._metric):
            at = gpus.index(self._device) if self._device in gpus else 0
            self.watched.gpu = gpus[(at + by) % len(gpus)]
        self.draw()

    def action_fit(self) -> None:
        self._fits = not self._fits
        self.draw()

    def action_event(self, way: int) -> None:
        self._ways.append(way)
        if len(self._ways) == 1:
            self._jump()

    def action_metric(self) -> None:
        from gpuadvisor.tui.watch.dialogs import Choice

        def chosen(name: str | None) -> None:
            if name is not None:
                self._metric = name
                self.draw()

        self.app.push_screen(Choice("What is drawn", charting.metrics(), self._metric), chosen)

    def action_go(self) -> None:
        from gpuadvisor.daemon.history import moment
        from gpuadvisor.tui.watch.dialogs import Typed

        hint = 'Such as "17 min ago", "yesterday 14:00" or "last night".'

        def gone(time_s: float | None) -> None:
            if time_s is not None:
                self._moved().move_to(time_s, self._now_s, in_the_middle=True)
                self.draw()

        def read(text: str) -> float:
            return moment("This", f"{text}:00" if AN_HOUR.fullmatch(text) else text, self._now_s)

        self.app.push_screen(Typed("Go to a time", hint, read), gone)

    def action_compare(self) -> None:
        from gpuadvisor.tui.watch import cells
        from gpuadvisor.tui.watch.dialogs import Choice

        labels = cells.labels(self.watched.state.gpus)
        entries = [("", "nothing")]
        entries += [(f"back {back_s}", f"the same, {words}") for words, back_s in EARLIER]
        if not charting.is_of_host(self._metric):
            entries += [
                (gpu.uuid, f"GPU {labels[gpu.uuid]}, {cells.name(gpu)}")
                for gpu in self.watched.state.gpus
                if gpu.uuid != self._device
            ]
        now = self._other
        chosen_now = "" if now is None else f"back {now.back_s}" if now.back_s else now.device

        def chosen(name: str | None) -> None:
            if name is None:
                return
            if not name:
                self._other = None
            elif name.startswith("back "):
                self._other = Series(HOST, float(name.removeprefix("back ")))
            else:
                self._other = Series(name)
            self.draw()

        self.app.push_screen(Choice("Compare with", entries, chosen_now), chosen)

    def _jump(self) -> None:
        """Ask for the event that the first waiting key wants."""
        if self._ways:
            cursor_s = self.window.cursor_s
            from_s = math.inf if cursor_s is None else cursor_s
            self._jumps.forget()
            self._jumps.ask((self._ways[0], from_s))

    def _land(self) -> None:
        """Go to the event that was found."""
        way = self._ways.pop(0)
        found = self._jumps.answer
        if found is None or self._jumps.error is not None:
            self._ways.clear()
            if self._jumps.error is None:
                self._watch.say(
                    f"No {'earlier' if way < 0 else 'later'} warning or error is known."
                )
            return
        self._moved().move_to(found.began_s, self._now_s)
        if found.gpu is not None and not charting.is_of_host(self._metric):
            if self._other is not None and self._other.device == found.gpu:
                self._other = Series(self._device)
            self.watched.gpu = found.gpu
        self._jump()


PAGE = Charts
