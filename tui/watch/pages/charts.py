"""Any metric over time, what was at a moment, and what happened: back to the store's first day."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from gpuadvisor.domain.metrics import BY_NAME, GPU_METRICS, HOST_METRICS
from gpuadvisor.domain.telemetry import HOST, Event
from gpuadvisor.printable import duration
from gpuadvisor.tui.watch import charting, plot, then
from gpuadvisor.tui.watch.asking import Asker
from gpuadvisor.tui.watch.cells import Line, Style
from gpuadvisor.tui.watch.charting import Chart, Drawing, Question, Series
from gpuadvisor.tui.watch.lines import Lines
from gpuadvisor.tui.watch.page import Page

if TYPE_CHECKING:
    from gpuadvisor.daemon.past import Past
    from gpuadvisor.domain.moment import Moment

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
SPANS_S = (MINUTE_S, 10 * MINUTE_S, HOUR_S, 6 * HOUR_S, DAY_S, 7 * DAY_S, 30 * DAY_S)
"""Lengths of a chart."""
STORED_S, LIVE_S = DAY_S, 10 * MINUTE_S
"""What is shown at first: of a store, and without one."""
STEP_BACK = 0.5
"""Share of the chart by which one steps back and forward."""
LEAST_CHART, CHART_SHARE, TWO_SHARE = 5, 0.55, 0.7
"""Lines of the charts, and the share of the page that one has, and two, where it is higher."""
LOOKED_AT = 500
"""Events before the cursor among which the one is looked for that is worth a look."""
RENEWED_SHARE, LONGEST_OLD_S = 0.05, 60.0
"""Share of a column's time after which a chart that ends now is read again, but for each second;
and the longest such time, in seconds: 30 days of eight GPUs take 0.2 s."""
RETRY_S = 5.0
"""Time after which what has failed is tried again."""
EARLIER = (("an hour before", HOUR_S), ("a day before", DAY_S), ("a week before", 7 * DAY_S))
START = "gpuadvisor daemon start"


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
            "g", "go", "go to", tooltip="go to a time: 14:02, yesterday 03:00, 3h, 2026-01-31T18:00"
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
        self._span_s: float | None = None
        self._until_s: float | None = None
        """Unix time at which the chart ends; None: now."""
        self._cursor_s: float | None = None
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
            from gpuadvisor.daemon.past import StoreAndMemory, of_recording
            from gpuadvisor.storage.telemetry.reader import TelemetryReader

            watched, memory = self.watched, self.watched.state.memory
            if watched.recording is not None:
                self._kept = of_recording(watched.recording)
            elif watched.store is None:
                assert memory is not None  # a daemon without a store is none
                self._kept = memory
            elif memory is None:
                self._kept = TelemetryReader(watched.store)
            else:
                self._kept = StoreAndMemory(TelemetryReader(watched.store), memory)
        return self._kept

    def _read_chart(self, question: Question) -> Chart:
        return charting.answered(self._past(), question)

    def _read_moment(self, time_s: float) -> Moment:
        return self._past().moment(time_s)

    def _read_event(self, question: tuple[int, float]) -> Event | None:
        """Return the next event that way from a time, of warnings and errors if there are any."""
        way, from_s = question
        if way < 0:
            found = self._past().events(0.0, from_s, LOOKED_AT)
            before = charting.troubles([each for each in found if each.began_s < from_s])
            return before[-1] if before else None
        found = self._past().events(from_s)
        after = charting.troubles([each for each in found if each.began_s > from_s])
        return after[0] if after else None

    @property
    def _now_s(self) -> float:
        """Unix time of what is watched: of a recording its end, as all of it is known."""
        chart = self._charts.answer
        if self.watched.recording is not None and chart is not None and chart.ends_s is not None:
            return chart.ends_s
        return self.watched.state.now_s

    @property
    def span_s(self) -> float:
        """Length of the chart, in seconds."""
        if self._span_s is not None:
            return self._span_s
        chart = self._charts.answer
        if self.watched.recording is None or chart is None or chart.begins_s is None:
            return STORED_S if self.watched.store is not None else LIVE_S
        length_s = self._now_s - chart.begins_s
        return next((span_s for span_s in SPANS_S if span_s >= length_s), SPANS_S[-1])

    @property
    def _device(self) -> str:
        if charting.is_of_host(self._metric):
            return HOST
        chosen = self.watched.chosen
        return self.watched.gpu or (chosen.uuid if chosen else HOST)

    def _question(self, drawing: Drawing) -> Question:
        every_s = min(max(self.span_s / drawing.columns * RENEWED_SHARE, 1.0), LONGEST_OLD_S)
        now_s = math.floor(self._now_s / every_s) * every_s
        until_s = now_s if self._until_s is None else self._until_s
        series = [Series(self._device)]
        if self._other is not None:
            is_other = self._other.device != HOST
            device = self._other.device if is_other else self._device
            series.append(Series(device, self._other.back_s))
        since_s = until_s - self.span_s
        return Question(
            self._metric, tuple(series), since_s, until_s, drawing.columns, max(now_s, until_s)
        )

    # -- what is drawn -------------------------------------------------------------------------

    def draw(self) -> None:
        width = self.size.width
        body = max(self.size.height - self._around, 1)
        count = 1 if self._other is None else 2
        share = CHART_SHARE if count == 1 else TWO_SHARE
        height = body if body <= LEAST_CHART + 1 else max(int(body * share), LEAST_CHART)
        drawing = Drawing(width, max(height - 1, 1), self._glyphs, self._fits)
        question = self._question(drawing)
        if self._charts.error is not None and time.monotonic() - self._failed_s >= RETRY_S:
            self._failed_s = time.monotonic()
            self._charts.forget()
        self._charts.ask(question)
        if self._cursor_s is not None:
            self._moments.ask(self._cursor_s)
        chart = self._charts.answer
        head = self._title(question, chart)
        if chart is None or self._charts.error is not None or len(chart.timelines) != count:
            self.query_one("#chart", Lines).show([head, *self._instead()])
            self.query_one("#then", Lines).show([])
            return
        asked = self._charts.question or question
        drawn = (asked, drawing, self._cursor_s, self._top)
        if drawn != self._drawn:  # it is drawn each second, and some 10 ms of work
            self._drawn = drawn
            self._lines = charting.lines(chart, *drawn)
        self.query_one("#chart", Lines).show([head, *self._lines])
        self.query_one("#then", Lines).show(self._below(chart, width, body - height))

    def _instead(self) -> list[Line]:
        if self._charts.error is not None:
            return [[(str(self._charts.error), Style.WARNING)]]
        words = "The recording is read ..." if self.watched.recording else "The store is read ..."
        return [[(words, Style.QUIET)]]

    def _below(self, chart: Chart, width: int, height: int) -> list[Line]:
        if self._cursor_s is None:
            known = self._known(chart)
            room = max(height - 1 - len(known), 0)
            lines = charting.event_lines(chart.events[0], chart.names, width, room)
            said = "Events of this time; e goes to the newest:" if lines else "No event then."
            return [*known, [(said, Style.TITLE)], *lines]
        if self._moments.error is not None:
            return [[(str(self._moments.error), Style.WARNING)]]
        moment = self._moments.answer
        if moment is None or self._moments.question != self._cursor_s:
            return [[(f"At {charting.moment_text(self._cursor_s)} ...", Style.TITLE)]]
        return then.lines(moment, self._device, chart.names, width, height, self._now_s)

    def _known(self, chart: Chart) -> list[Line]:
        """Return since when anything is known, where the chart begins before."""
        since_s = self._charts.question.since_s if self._charts.question else math.inf
        if chart.begins_s is None or chart.begins_s <= since_s:
            return []
        said = f"Nothing is known of before {charting.moment_text(chart.begins_s)}."
        if self.watched.store is None and self.watched.recording is None:
            said += f" `{START}` keeps 90 days."
        return [[(said, Style.QUIET)]]

    def _title(self, question: Question, chart: Chart | None) -> Line:
        metric = BY_NAME[self._metric]
        ends = "" if self._until_s is None else f" to {charting.moment_text(self._until_s, 60)}"
        step = ""
        if chart is not None and chart.timelines:
            step = f", {charting.step_text(chart.timelines[0].step_s)} a column"
        said = f"  {duration(self.span_s)}{ends}{step}"
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

    # -- keys ----------------------------------------------------------------------------------

    def action_cursor(self, by: int) -> None:
        chart = self._charts.answer
        if chart is None or not chart.timelines:
            return
        timeline = chart.timelines[0]
        at = timeline.end_s if self._cursor_s is None else self._cursor_s
        place = math.floor((at - timeline.begin_s) / timeline.step_s) + by
        self._freeze()
        self._cursor_s = timeline.begin_s + (place + 0.5) * timeline.step_s
        self._show_cursor()
        self.draw()

    def action_step(self, way: int) -> None:
        self._freeze()
        assert self._until_s is not None
        by_s = way * STEP_BACK * self.span_s
        self._until_s += by_s
        if self._cursor_s is not None:
            self._cursor_s += by_s
        if self._until_s >= self._now_s:
            self._until_s = None
        self.draw()

    def action_now(self) -> None:
        self._until_s = self._cursor_s = None
        self.draw()

    def action_span(self, by: int) -> None:
        spans = SPANS_S
        nearest = min(range(len(spans)), key=lambda n: abs(math.log(spans[n] / self.span_s)))
        self._span_s = spans[min(max(nearest + by, 0), len(spans) - 1)]
        self._show_cursor(in_the_middle=True)
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
        from gpuadvisor.tui.watch.choosing import Choice

        entries = [
            (each.name, f"{each.help}{f' ({each.unit})' if each.unit else ''}{where}")
            for metrics, where in ((GPU_METRICS, ""), (HOST_METRICS, ", of the machine"))
            for each in metrics
        ]

        def chosen(name: str | None) -> None:
            if name is not None:
                self._metric = name
                self.draw()

        self.app.push_screen(Choice("What is drawn", entries, self._metric), chosen)

    def action_go(self) -> None:
        from gpuadvisor.daemon.history import moment
        from gpuadvisor.tui.watch.choosing import Typed

        hint = 'Such as "14:02", "yesterday 03:00", "monday 18:30", "3h" ago, "2026-01-31T18:00".'

        def gone(time_s: float | None) -> None:
            if time_s is not None:
                self._cursor_s = min(time_s, self._now_s)
                self._show_cursor(in_the_middle=True)
                self.draw()

        read = lambda text: moment("This", text, self._now_s)  # noqa: E731
        self.app.push_screen(Typed("Go to a time", hint, read), gone)

    def action_compare(self) -> None:
        from gpuadvisor.tui.watch import cells
        from gpuadvisor.tui.watch.choosing import Choice

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

    def _freeze(self) -> None:
        """Have the chart end where it does now."""
        if self._until_s is None:
            self._until_s = self._now_s

    def _show_cursor(self, *, in_the_middle: bool = False) -> None:
        """Move the chart as far as it takes to see the cursor."""
        if self._cursor_s is None:
            return
        until_s = self._now_s if self._until_s is None else self._until_s
        if in_the_middle or not until_s - self.span_s <= self._cursor_s < until_s:
            self._until_s = min(self._cursor_s + self.span_s / 2, self._now_s)

    def _jump(self) -> None:
        """Ask for the event that the first waiting key wants."""
        if self._ways:
            from_s = math.inf if self._cursor_s is None else self._cursor_s
            self._jumps.forget()
            self._jumps.ask((self._ways[0], from_s))

    def _land(self) -> None:
        """Go to the event that was found."""
        self._ways.pop(0)
        found = self._jumps.answer
        if found is None or self._jumps.error is not None:
            self._ways.clear()
            return
        self._cursor_s = found.began_s
        if found.gpu is not None and not charting.is_of_host(self._metric):
            if self._other is not None and self._other.device == found.gpu:
                self._other = Series(self._device)
            self.watched.gpu = found.gpu
        self._show_cursor()
        self._jump()


PAGE = Charts
