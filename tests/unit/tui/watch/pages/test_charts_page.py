"""Charts by their keys: what was on a GPU last night, out of a store, a recording and memory."""

import asyncio
import re
import sqlite3
import threading
from dataclasses import replace

import pytest
from textual.widgets import Input

from gpuadvisor.collectors.telemetry.recording import Recorder
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, GpuProcess
from gpuadvisor.tui.watch.app import Watch
from gpuadvisor.tui.watch.dialogs import Reading
from gpuadvisor.tui.watch.pages.charts import Charts
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.watched import Watched
from tests.telemetry import START_S, frame, sample
from tests.telemetry_store import stored
from tests.unit.tui.watch import screens
from tests.unit.tui.watch.screens import screen_text

LENGTH_S = 600
GAP = range(250, 280)
XID = Event(
    "xid",
    START_S + 400,
    "GPU 0 reported Xid 79.",
    Severity.ERROR,
    "GPU-0",
    ended_s=START_S + 400,
)
HELD = Event(
    "throttling",
    START_S + 200,
    "GPU 1 is held at 1410 of 1980 MHz by its power limit (700 W).",
    Severity.WARNING,
    "GPU-1",
    START_S + 240,
)
ADDED = Event("gpu_added", START_S + 500, "GPU 1 was added.", ended_s=START_S + 500)
TRAIN = GpuProcess("GPU-0", 4711, "compute", 30 * 2**30, "python", "anna", "python train.py")


def frames():
    """Ten minutes of two GPUs, with a spike of a second and half a minute in which nothing ran."""
    for at in range(LENGTH_S):
        if at in GAP:
            continue
        watts = 690.0 if at == 420 else 400.0
        flags = 4 if 200 <= at < 240 else 0
        first = sample(power_w=watts, energy_j=at * 400.0)
        made = frame(at, first, sample(power_w=100.0, throttle_reasons=flags))
        listed = (TRAIN,) if at < 450 else ()
        yield replace(made, processes=listed if at % 5 == 0 else None)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    stored(folder, *frames(), events=[HELD, XID, ADDED])
    return folder


class Now:
    """A source whose newest frame is ten minutes after the start; it then says nothing."""

    label = "daemon"
    has_all_events = True
    withheld = None

    def __init__(self, *frames):
        self._frames = frames or (frame(LENGTH_S, sample(), sample()),)
        self._closed = threading.Event()

    def frames(self):
        yield from self._frames
        self._closed.wait()

    def close(self):
        self._closed.set()


def watch(store=None, source=None, *, is_live=False, recording=None, theme="terminal"):
    is_past = recording is not None
    state = WatchState("x", has_all_events=not is_live, is_past=is_past, clock=lambda: 0.0)
    return Watch(Watched(source or Now(), state, store, recording), theme)


async def until(pilot, is_true):
    def redrawn():
        if isinstance(pilot.app.screen, Charts):
            pilot.app.screen.redraw()
        return is_true()

    await screens.until(pilot, redrawn)


def tour(app, *steps, size=(120, 40), then=None):
    """Open the charts and go through steps: keys, and words that the screen then shows.

    What begins with "=" is typed at once. Return the last screen.
    """

    async def run():
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: len(app.pages) > 1)
            await pilot.press("3")
            await until(pilot, lambda: isinstance(app.screen, Charts))
            page = app.screen
            await until(pilot, lambda: page._charts.question or page._charts.error)
            for pressed, *shown in steps:
                for key in pressed:
                    if key.startswith("="):
                        app.screen.query_one(Input).value = key[1:]
                        await pilot.pause()
                        continue
                    await pilot.press(key)
                    await until(pilot, lambda: not page._ways)
                await until(pilot, lambda: not page._charts.is_busy)
                await until(pilot, lambda shown=shown: all(w in screen_text(app) for w in shown))
            if then is not None:
                await then(pilot)
            return screen_text(app)

    return asyncio.run(run())


def test_last_nights_event_is_two_keys_away_with_what_was_then(store):
    text = tour(watch(store), ("e", "At Tue 14 Nov 22:20:00", "python train.py"))
    assert "E Tue 14 Nov 22:20:00" in text and "GPU 0 reported Xid 79." in text
    assert "util 97 %" in text and "power 400.0 W" in text
    assert "anna" in text and "30.0 GiB" in text
    assert "▲" in text


def test_a_key_that_finds_no_event_says_so(store):
    tour(
        watch(store),
        ("E", "No later warning or error is known."),
        ("eeee", "No earlier warning or error is known.", "At Tue 14 Nov"),
    )


def test_events_before_and_after_and_of_another_gpu(store):
    app = watch(store)
    tour(
        app,
        ("ee", "At Tue 14 Nov 22:16:40", "No process on GPU 1", "held down by power cap"),
        ("", "W Tue 14 Nov 22:16:40   40 s  GPU 1 is held"),
        ("ee", "At Tue 14 Nov 22:16:40"),  # there is no older one
        ("E", "At Tue 14 Nov 22:20:00", "1 process on GPU 0"),
    )
    assert app.watched.gpu == "GPU-0"


LONG = (
    "GPU 0 works at 1734 of 1980 MHz, held by neither power nor heat. " * 3 + "Unlock its clocks."
)


@pytest.mark.parametrize("is_clicked", [False, True], ids=["Enter", "a click"])
def test_an_event_can_be_read_whole(tmp_path, is_clicked):
    slow = replace(XID, kind="finding", severity=Severity.WARNING, message=LONG)
    stored(tmp_path, *frames(), events=[slow])

    async def read(pilot):
        app = pilot.app
        assert "Unlock its clocks." not in screen_text(app)
        if is_clicked:
            lines = screen_text(app).splitlines()
            row = next(n for n, line in enumerate(lines) if line.startswith("W Tue"))
            await pilot.click(offset=(30, row))
        else:
            await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Reading))
        await screens.shown(pilot, "Tue 14 Nov 22:20:00  warning  GPU 0  finding", "Unlock its")
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, Charts))

    tour(watch(tmp_path), ("", "W Tue 14 Nov"), then=read)
    tour(watch(tmp_path), ("e", "W Tue 14 Nov"), then=read)


HOT = Event("temperature", START_S + 450, "GPU 0 is at 88 C.", Severity.WARNING, "GPU-0")
LINE, WHOLE = "W Tue 14 Nov 22:20:50", "Tue 14 Nov 22:20:50, "


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"events": (HOT,)}, ("lasts ", "lasts  ")),
        ({}, ("lasts?", "lasted when it was read last  ")),  # a store whose daemon was killed
        (
            {"events": (HOT,), "problem": "The driver hangs."},
            ("lasts?", "lasted when it was read last  "),
        ),
        (
            {"events": (HOT, replace(HOT, ended_s=START_S + LENGTH_S))},  # the chart is older
            ("lasts?", "lasted when it was read last  "),
        ),
    ],
    ids=["told by a frame", "told by the store alone", "unreadable", "over"],
)
def test_an_event_lasts_only_where_the_newest_frames_tell_it(tmp_path, told, expected):
    """Where it is listed, and where it is at the cursor."""
    stored(tmp_path, *frames(), events=[HOT])
    newest = replace(frame(LENGTH_S, sample(), sample()), **told)

    async def read(pilot):
        page = pilot.app.screen
        for keys in ((), ("e",)):
            await pilot.press(*keys)
            await until(pilot, lambda: not page._ways and not page._charts.is_busy)
            await until(pilot, lambda: LINE in screen_text(pilot.app))
            (line,) = (e for e in screen_text(pilot.app).splitlines() if e.startswith(LINE))
            assert line.removeprefix(LINE).lstrip().startswith(expected[0])
            await pilot.press("enter")
            await screens.shown(pilot, WHOLE + expected[1])
            await pilot.press("escape")
            await until(pilot, lambda: pilot.app.screen is page)

    tour(watch(tmp_path, Now(newest)), ("", LINE), then=read)


def test_a_number_is_an_hour(store):
    tour(watch(store), ("g", "17 min ago"), (["=22", "enter"], "At Tue 14 Nov 22:00:00"))


def test_a_gpu_has_its_events_and_the_machines(tmp_path):
    gap = Event("gap", START_S + 300, "Nothing ran.", ended_s=START_S + 310)
    stored(tmp_path, *frames(), events=[XID, HELD, gap])
    first = tour(watch(tmp_path), ("", "Xid 79"))
    assert "Nothing ran." in first and "is held at" not in first
    second = tour(watch(tmp_path), (["down"], "is held at"))
    assert "Nothing ran." in second and "Xid 79" not in second


def test_spans_cursor_and_steps(store):
    async def back(pilot):
        page = pilot.app.screen
        await pilot.press("end", "minus")
        assert page.window.span_s == 600
        await pilot.press("shift+left")
        assert page.window.until_s == START_S + 300
        await pilot.press("shift+right")
        assert page.window.until_s is None
        await pilot.press("shift+left", "left", "end")
        assert page.window.until_s is None and page.window.cursor_s is None

    tour(
        watch(store),
        (["minus"] * 5, "30 d"),
        (["plus"] * 8, "1 min"),
        (("left", "left"), "At Tue 14 Nov 22:23:1"),
        (("right",), "At Tue 14 Nov 22:23:1"),
        then=back,
    )


@pytest.mark.parametrize(
    ("since_s", "now_s", "span"),
    [
        (0, 50, "1 min"),
        (0, 590, "10 min"),
        (0, 1080, "1 h"),
        (-20000, 590, "6 h"),
        (-70000, 590, "1 d"),
        (-200000, 590, "1 min"),
    ],
)
def test_at_first_it_shows_the_shortest_span_with_all_that_is_known_of_a_day(
    tmp_path, since_s, now_s, span
):
    early = [frame(since_s + second, sample()) for second in range(30)]
    longer_ago = [frame(second - 3 * 86400, sample()) for second in range(30)]
    late = [frame(now_s - 30 + second, sample()) for second in range(31)]
    stored(tmp_path, *longer_ago, *early, *late)
    page = tour(watch(tmp_path, Now(late[-1])), ("", "a column"))
    assert re.search(rf"  {span}, .* a column", page), page


def test_what_is_shown_at_first_grows_until_a_key_changes_it(tmp_path):
    stored(tmp_path, *(frame(at, sample()) for at in range(50)))

    async def grow(pilot):
        state, page = pilot.app.state, pilot.app.screen
        assert page.window.span_s == 60
        state.update(frame(70, sample()))
        assert page.window.span_s == 600
        await pilot.press("plus")
        state.update(frame(800, sample()))
        assert page.window.span_s == 60

    tour(watch(tmp_path, Now(frame(49, sample()))), ("", "1 min, "), then=grow)


def test_a_metric_is_found_by_its_words(store):
    text = tour(
        watch(store),
        (("m", "=power draw av", "enter", *["minus"] * 3), "Power draw, averaged", "690.0 W"),
        (("m", "=energy", "enter"), "Energy used", "+"),
        (("m", *"held", "enter", "down"), "power cap", "█"),
        (("m", "=processes that run", "enter"), "Processes that run or"),
    )
    assert "host" in text


def test_a_time_that_one_types(store):
    tour(
        watch(store),
        (("g", *"22:20:00", "enter"), "At Tue 14 Nov 22:20:00", "util 97 %"),
        (("g", "=sometime", "enter"), "must be a time ago such as", "yesterday 03:00"),
        (("escape",), "At Tue 14 Nov 22:20:00"),
        (("g", "=22:17:50", "enter"), "At Tue 14 Nov 22:17:50", "stale"),
        (("g", "=yesterday", "enter"), "At Mon 13 Nov 00:00:00", "Nothing was measured then."),
    )


def test_two_gpus_and_two_times_are_compared_on_one_scale(store):
    text = tour(watch(store), (("c", "=gpu 1", "enter"), "GPU 0  ", "GPU 1  "))
    assert text.count("events ") == 2
    text = tour(
        watch(store),
        (("c", "=hour", "enter"), "Tue 14 Nov 21:"),
        (("c", "=noth", "enter"), "22:"),
    )
    assert text.count("events ") == 1


def test_a_gap_is_blank_and_what_lasts_is_marked(store):
    text = tour(watch(store), ("", "10 min, "))
    axis = next(line for line in text.splitlines() if "───" in line and "┌" not in line)
    assert "  " in axis.strip()
    assert " E" in text
    assert "W-" in tour(watch(store), ("", "10 min, "), (["down"], "GPU 1  "))


def test_memory_shows_the_last_minutes_without_a_daemon():
    text = tour(
        watch(None, Now(*frames()), is_live=True),
        ("", "10 min"),
        (("minus",), "1 h", "Nothing is known of before", "gpuadvisor daemon start"),
        (("left",), "util 97 %"),
    )
    assert "No process on GPU 0" in text


def test_a_recording_is_known_to_its_end(tmp_path):
    path = tmp_path / "night.gpr"
    with Recorder(path, "test") as recorder:
        for each in frames():
            recorder.write(each)
    app = watch(None, Now(next(iter(frames()))), is_live=True, recording=path)
    tour(
        app,
        ("", "10 min", "Events of this time", "Nothing was measured for"),
        ("e", "At Tue 14 Nov"),
    )


def test_a_damaged_store_is_a_sentence_and_other_pages_go_on(tmp_path):
    (tmp_path / "index.db").write_text("no database, and long enough to be taken for one" * 30)
    text = tour(
        watch(tmp_path),
        (("e", "left"), "is not a SQLite database"),
        ("13", "is not a SQLite database"),
    )
    assert "Traceback" not in text


def test_a_locked_store_does_not_hold_up_the_page(tmp_path):
    stored(tmp_path, *list(frames())[:5])
    held = [sqlite3.connect(path) for path in tmp_path.glob("*.db")]
    try:
        for each in held:
            each.execute("PRAGMA locking_mode = EXCLUSIVE")
            each.execute("BEGIN EXCLUSIVE")
        app = watch(tmp_path)

        async def run():
            async with app.run_test(size=(100, 30)) as pilot:
                await until(pilot, lambda: len(app.pages) > 1)
                await pilot.press("3")
                await until(pilot, lambda: "The store is read" in screen_text(app))
                await pilot.press("left", "e", "z", "m", "escape", "q")

        asyncio.run(run())
        assert app.return_code == 0
    finally:
        for each in held:
            each.close()


@pytest.mark.parametrize(
    ("theme", "size"),
    [("terminal", (120, 36)), ("mono", (80, 24)), ("light", (80, 24)), ("colour-blind", (80, 24))],
)
def test_what_it_looks_like(snap_compare, store, theme, size):
    async def at_the_event(pilot):
        app = pilot.app
        await until(pilot, lambda: len(app.pages) > 1)
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.screen, Charts))
        app.screen.query_one("#head").display = False  # it has the names of other pages
        await pilot.press("minus", "plus", "c", *"gpu 1", "enter", "e")
        await until(pilot, lambda: "python train.py" in screen_text(app))
        await until(pilot, lambda: "GPU 1  " in screen_text(app) and not app.screen._charts.is_busy)

    app = watch(store, theme=theme)
    assert snap_compare(app, terminal_size=size, run_before=at_the_event)


@pytest.mark.parametrize("size", [(20, 5), (80, 24), (300, 80)])
def test_every_size_of_a_terminal(store, size):
    width, height = size
    text = tour(watch(store), (("e", "c", "down", "enter", "left"),), size=size)
    lines = text.splitlines()
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    if height >= 24:
        assert "At Tue 14 Nov" in text


def test_a_terminal_that_shrinks_and_grows(store):
    async def resize(pilot):
        for size in ((20, 5), (300, 80), (1, 1), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert "At Tue 14 Nov" in screen_text(pilot.app)

    tour(watch(store), ("e", "At Tue"), then=resize)


def test_typing_leaves_the_letters_to_the_search(store):
    async def typed(pilot):
        assert pilot.app.screen.query_one(Input).value == "eq3"

    tour(watch(store), (("m", "e", "q", "3"),), then=typed)
