"""The page: what it looks like, what its keys do, and that `q` always ends it."""

import asyncio
import re
import threading

import pytest

from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, State, Unavailable
from gpuadvisor.tui.watch import overview
from gpuadvisor.tui.watch.app import Watch
from gpuadvisor.tui.watch.help import Help
from gpuadvisor.tui.watch.page import Page
from gpuadvisor.tui.watch.pages.overview import Overview
from gpuadvisor.tui.watch.pages.processes import Processes
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.watched import Watched
from tests.telemetry import START_S, all_in, frame, sample
from tests.unit.tui.watch.screens import PATIENCE_S, screen_text, shown, until


class Made:
    """A source of made frames, which then says nothing until it is closed."""

    label = "live"
    withheld = None

    def __init__(self, *frames, ends=False):
        self._frames = frames
        self._ends = ends
        self.closed = threading.Event()

    def frames(self):
        yield from self._frames
        if not self._ends:
            self.closed.wait()

    def close(self):
        self.closed.set()


class Deaf(Made):
    """A source that hangs, and that cannot be closed either."""

    def __init__(self):
        super().__init__()
        self.is_asked = threading.Event()

    def frames(self):
        self.is_asked.set()
        yield from super().frames()

    def close(self):
        threading.Event().wait()


class Broken(Made):
    """A source that fails."""

    def frames(self):
        yield from self._frames
        raise OSError("the disk is gone")


def page(source, label="live"):
    """A page on which no time goes by but that of the frames."""
    return Watch(Watched(source, WatchState(label, host="node7", clock=lambda: 0.0)))


def pictured(source, label="live", theme="terminal"):
    """The same with two pages in its head, so that another one changes no picture."""
    state = WatchState(label, host="node7", clock=lambda: 0.0)
    app = Watch(Watched(source, state), theme)
    app.pages = [Overview, Processes]
    return app


def taken(count):
    """Wait, before a picture is taken, until so many frames are on the page."""

    async def wait(pilot):
        await until(pilot, lambda: pilot.app.state.frames == count)
        pilot.app.draw()
        await pilot.pause()

    return wait


def wave(at_s, index):
    """How busy a GPU is: up and down in 40 s, each a little behind the one before."""
    level = abs((at_s - 5 * index) % 40 - 20) / 20
    return {
        "gpu_utilization_pct": round(100 * level),
        "power_w": 120 + 580 * level,
        "temperature_c": round(35 + 40 * level),
        "sm_clock_mhz": round(1980 - 150 * level),
    }


SINCE_S = START_S + 87
POWER_CAP = {"throttle_reasons": 0x4, "sm_clock_mhz": 1755}
DENIED = {
    "power_w": Unavailable(State.NO_PERMISSION, START_S, "the driver allows it to root only"),
    "tensor_active_pct": Unavailable(State.NOT_SUPPORTED, START_S),
}
XID = Event(
    "xid",
    START_S + 61,
    "GPU 3 reported Xid 79, the GPU fell off the bus: reboot, then check its power, cooling and "
    "seat if it comes back.",
    Severity.ERROR,
    "GPU-3",
    ended_s=START_S + 61,
)


def busy_node():
    """A minute and a half of six GPUs, of which some are in trouble in the end."""
    for at_s in range(91):
        in_trouble = at_s > 87
        yield frame(
            at_s,
            sample(**{**wave(at_s, 0), **(POWER_CAP if at_s > 70 else {})}),
            sample(**wave(at_s, 1), throttle_reasons=0x60 if at_s > 80 else 0),
            all_in(State.STALE, SINCE_S, "no answer") if in_trouble else sample(**wave(at_s, 2)),
            all_in(State.LOST, START_S + 61) if at_s > 60 else sample(**wave(at_s, 3)),
            sample(DENIED, gpu_utilization_pct=0),
            sample(**dict.fromkeys(sample().values)),
            events=(XID,) if at_s == 61 else (),
        )


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=["80x24", "160x45"])
def test_a_node_whose_gpus_are_in_every_state(snap_compare, size):
    app = pictured(Made(*busy_node()))
    assert snap_compare(app, terminal_size=size, run_before=taken(91))


def test_without_colours_all_can_still_be_read(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = pictured(Made(*busy_node()))
    assert snap_compare(app, terminal_size=(80, 24), run_before=taken(91))


def test_the_details_of_a_gpu_say_why_values_are_missing(snap_compare):
    app = pictured(Made(*busy_node()))
    assert snap_compare(
        app, press=["down", "down", "enter"], terminal_size=(100, 30), run_before=taken(91)
    )


def test_a_terminal_that_is_tiny(snap_compare):
    app = pictured(Made(*busy_node()))
    assert snap_compare(app, terminal_size=(30, 8), run_before=taken(91))


@pytest.mark.parametrize("theme", ["dark", "light", "colour-blind", "mono"])
def test_every_theme(snap_compare, theme):
    app = pictured(Made(*busy_node()), theme=theme)
    assert snap_compare(app, terminal_size=(80, 24), run_before=taken(91))


def test_the_end_of_a_recording(snap_compare):
    async def ended(pilot):
        await until(pilot, lambda: pilot.app.state.has_ended)

    app = pictured(Made(*busy_node(), ends=True), label="night.gpr")
    assert snap_compare(app, terminal_size=(80, 24), run_before=ended)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=["80x24", "160x45"])
def test_before_the_first_values(snap_compare, size):
    starting = frame(0, problem="The NVIDIA driver is starting.")
    assert snap_compare(pictured(Made(starting)), terminal_size=size, run_before=taken(1))


def test_the_help(snap_compare):
    app = pictured(Made(frame(0, sample())))
    assert snap_compare(app, press=["question_mark"], terminal_size=(80, 24), run_before=taken(1))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("keys", "size"),
    [
        (["q"], (1, 1)),
        (["q"], (300, 100)),
        (["ctrl+c"], (80, 24)),
        (["question_mark", "q", "q"], (80, 24)),
        (["enter", "tab", "q"], (80, 24)),
    ],
)
async def test_q_ends_it(keys, size):
    source = Made(frame(0, sample()))
    app = page(source)
    async with app.run_test(size=size) as pilot:
        await pilot.press(*keys)
        await until(pilot, lambda: not app.is_running)
    assert app.return_code == 0
    assert source.closed.wait(PATIENCE_S)


@pytest.mark.asyncio
async def test_q_ends_it_while_the_source_hangs_for_ever():
    source = Deaf()
    app = page(source)
    async with app.run_test() as pilot:
        await until(pilot, source.is_asked.is_set)
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)
    assert app.return_code == 0


@pytest.mark.asyncio
async def test_a_fault_of_the_page_ends_it_without_a_traceback(capsys):
    app = page(Made(frame(0, sample())))
    fault = ZeroDivisionError("in the page")

    def fails():
        raise fault

    app.call_later(fails)  # once it runs
    await asyncio.wait_for(app.run_async(headless=True), PATIENCE_S)
    assert app.failure is fault
    assert "Traceback" not in "".join(capsys.readouterr())


@pytest.mark.asyncio
async def test_a_fault_of_the_page_fails_a_test():
    app = page(Made(frame(0, sample())))

    def fails():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with app.run_test() as pilot:
            app.call_later(fails)
            await pilot.pause()


@pytest.mark.asyncio
async def test_m_goes_through_the_metrics():
    app = page(Made(frame(0, sample())))
    async with app.run_test(size=(160, 45)) as pilot:
        await taken(1)(pilot)
        for title in ("util", "memory", "power", "temp"):
            assert re.search(rf" {title},? (last )?\d min", screen_text(app))
            await pilot.press("m")


@pytest.mark.asyncio
async def test_enter_shows_and_hides_all_of_the_chosen_gpu():
    app = page(Made(frame(0, sample(), sample())))
    async with app.run_test(size=(80, 24)) as pilot:
        await taken(1)(pilot)
        assert "SM clock" not in screen_text(app)
        await pilot.press("down", "enter")
        assert "all of GPU 1" in screen_text(app)
        assert re.search(r"SM clock +1755 MHz", screen_text(app))
        await pilot.press("enter")
        assert "SM clock" not in screen_text(app)


@pytest.mark.asyncio
async def test_the_chosen_gpu_stays_while_values_change_and_gpus_come():
    frames = [frame(0, sample(), sample()), frame(1, sample(), sample(), sample())]
    app = page(Made(frames[0]))
    async with app.run_test(size=(80, 24)) as pilot:
        await taken(1)(pilot)
        await pilot.press("down")
        app.state.update(frames[1])
        app.draw()
        await pilot.pause()
        assert app.watched.gpu == "GPU-1"
        await pilot.press("end", "down")
        assert app.watched.gpu == "GPU-2"


@pytest.mark.asyncio
async def test_a_click_chooses_a_gpu_and_a_page():
    app = page(Made(frame(0, sample(), sample())))
    async with app.run_test(size=(80, 24)) as pilot:
        await taken(1)(pilot)
        await until(pilot, lambda: app.pages)
        await pilot.click(offset=(10, 4))
        assert app.watched.gpu == "GPU-1"
        await pilot.click(offset=(12, 0))
        await until(pilot, lambda: "[2 processes]" in screen_text(app))


@pytest.mark.asyncio
async def test_64_gpus_fit_and_arrows_go_through_the_grid():
    app = page(Made(frame(0, *(sample(gpu_utilization_pct=n) for n in range(64)))))
    async with app.run_test(size=(120, 40)) as pilot:
        await taken(1)(pilot)
        text = screen_text(app)
        assert [n for n in range(64) if not re.search(rf"[ >] {{1,3}}{n} .{{5,}} {n}%", text)] == []
        await pilot.press("down", "right", "right")
        assert app.watched.gpu not in (None, "GPU-0")
        assert re.search(rf"> *{app.watched.gpu[4:]} ", screen_text(app))


@pytest.mark.asyncio
@pytest.mark.parametrize("count", [1, 2, 8, 64])
async def test_the_smallest_page_has_a_gpu_and_what_is_wrong(count):
    broken = f"GPU-{count - 1}"
    lost = Event("xid", START_S, "Xid 79: reboot.", Severity.ERROR, broken)
    app = page(Made(frame(0, *[sample()] * count, events=(lost,))))
    async with app.run_test(size=(26, 5)) as pilot:
        await taken(1)(pilot)
        text = screen_text(app)
        assert "97%" in text and f"GPU {count - 1}: Xid 79: reboot." in text


@pytest.mark.asyncio
async def test_sentences_without_room_are_counted():
    lost = [
        Event("xid", START_S, f"Xid {60 + n}: reboot.", Severity.ERROR, f"GPU-{n}")
        for n in range(64)
    ]
    app = page(Made(frame(0, *[sample()] * 64, events=tuple(lost))))
    async with app.run_test(size=(80, 24)) as pilot:
        await taken(1)(pilot)
        text = screen_text(app)
        told = len(re.findall(r"^GPU \d+: Xid", text, re.MULTILINE))
        assert told and f"and {64 - told} more: the chosen GPU's comes first" in text
        await pilot.press("right")
        assert "GPU 1: Xid 61: reboot." in screen_text(app)


@pytest.mark.asyncio
async def test_any_size_will_do_and_back():
    app = page(Made(*busy_node()))
    async with app.run_test(size=(80, 24)) as pilot:
        await taken(91)(pilot)
        await until(pilot, lambda: app.pages)
        for each in app.pages:
            await pilot.press(each.KEY)
            for size in ((20, 5), (1, 1), (300, 80), (80, 24)):
                await pilot.resize_terminal(*size)
                await pilot.pause()
                app.draw()
                lines = screen_text(app).splitlines()
                assert max(map(len, lines), default=0) <= size[0]
                assert len(lines) <= size[1]
        await pilot.press("1")
        await shown(pilot, "power cap")


@pytest.mark.parametrize("count", [1, 2, 4, 8, 9, 16, 64])
@pytest.mark.parametrize("size", [(20, 3), (20, 5), (40, 8), (13, 4), (80, 24), (160, 45)])
def test_gpus_for_which_there_is_no_room_are_counted(size, count):
    state = WatchState("live", clock=lambda: 0.0)
    state.update(frame(0, *[sample(throttle_reasons=0x4)] * count))
    for chosen in (state.gpus[0], state.gpus[-1]):
        made = overview.shown(state, *size, chosen)
        left_out = count - sum(map(len, made.gpus.values()))
        lines = ["".join(text for text, _ in line) for line in made.lines]
        counted = [line for line in lines if re.search(r" \+\d+ GPUs?$", line)]
        assert len(counted) == (left_out > 0)
        assert all(line.endswith(f" +{left_out} GPU{'s' * (left_out > 1)}") for line in counted)
        assert len(lines) <= size[1]
        assert any(chosen.uuid in each for each in made.gpus.values())


@pytest.mark.asyncio
async def test_a_long_notice_leaves_room_for_the_page_and_says_that_it_goes_on():
    sentence = f"The driver does not answer: {'and so on, ' * 40}."
    app = page(Made(frame(0, sample(), sample(), problem=sentence)))
    async with app.run_test(size=(20, 5)) as pilot:
        await shown(pilot, "+1 GPU")
        _, notice, *_ = screen_text(app).splitlines()
        assert notice == "The driver does not…"
        await pilot.resize_terminal(80, 24)
        await shown(pilot, "mem GiB")
        notice = screen_text(app).splitlines()[1:4]
        assert [line.endswith("…") for line in notice] == [False, False, True]


@pytest.mark.asyncio
async def test_the_help_goes_with_any_key():
    app = page(Made(frame(0, sample())))
    async with app.run_test() as pilot:
        for key in ("x", "enter", "escape"):
            await pilot.press("question_mark")
            await until(pilot, lambda: isinstance(app.screen, Help))
            await pilot.press(key)
            await until(pilot, lambda: not isinstance(app.screen, Help))


@pytest.mark.asyncio
async def test_each_page_opens_by_its_key_and_is_in_the_head_and_help():
    app = page(Made(frame(0, sample())))
    async with app.run_test(size=(120, 40)) as pilot:
        await taken(1)(pilot)
        await until(pilot, lambda: app.pages)
        await pilot.press("9")
        await until(pilot, lambda: "There is no page 9: 1 to 6 are there." in screen_text(app))
        assert [each.KEY for each in app.pages] == [f"{n + 1}" for n in range(len(app.pages))]
        for each in [*app.pages, app.pages[0]]:
            await pilot.press(each.KEY)
            await until(
                pilot, lambda each=each: isinstance(app.screen, each) and app.screen.is_mounted
            )
            assert f"[{each.KEY} {each.NAME}]" in screen_text(app)
            await pilot.press("question_mark")
            await until(pilot, lambda: isinstance(app.screen, Help))
            assert each.ABOUT in " ".join(screen_text(app).replace("│", "").split())
            await pilot.press("escape")


@pytest.mark.asyncio
@pytest.mark.parametrize("width", [40, 80, 120])
async def test_every_page_says_how_to_leave_it_and_where_help_is(width):
    app = page(Made(frame(0, sample())))
    async with app.run_test(size=(width, 24)) as pilot:
        await taken(1)(pilot)
        await until(pilot, lambda: app.pages)
        for each in app.pages:
            await pilot.press(each.KEY)
            await until(pilot, lambda: screen_text(app).rstrip().endswith("q quit  ? help"))


class Absent(Page):
    """A page of what is not there."""

    KEY = "9"
    NAME = "absent"

    @classmethod
    def unavailable(cls, watched):
        return "There is no store: `gpuadvisor daemon start`."

    def compose_page(self):
        raise AssertionError

    def draw(self):
        raise AssertionError


@pytest.mark.asyncio
async def test_a_page_that_lacks_what_it_needs_says_so_instead():
    app = page(Made(frame(0, sample())))
    async with app.run_test(size=(80, 24)) as pilot:
        await taken(1)(pilot)
        await until(pilot, lambda: app.pages)
        app.pages.append(Absent)
        app.add_mode("9", Absent)
        app.action_open("9")
        await until(pilot, lambda: "There is no store" in screen_text(app))
        await pilot.press("1")
        await until(pilot, lambda: "[1 GPUs]" in screen_text(app))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (Made(frame(0, problem="No GPU was found.")), "nothing to watch: No GPU was found."),
        (Made(ends=True), "nothing to watch: there is no frame"),
        (Broken(frame(0, sample())), "the disk is gone"),
    ],
    ids=["no GPU", "no frame", "a source that fails"],
)
async def test_without_anything_to_show_it_ends_and_says_why(source, sentence):
    app = page(source)
    async with app.run_test() as pilot:
        await until(pilot, lambda: not app.is_running)
    assert app.return_code == 1
    assert sentence in str(app.failure)


@pytest.mark.asyncio
async def test_gpus_that_go_away_do_not_end_it():
    gone = frame(1, gpus=(), problem="No GPU was found.")
    app = page(Made(frame(0, sample()), gone))
    async with app.run_test() as pilot:
        await taken(2)(pilot)
        assert app.is_running
        assert app.state.notice == "No GPU was found."
        assert "0 GPUs" in app.state.heading(80)
        assert "H100" not in screen_text(app)


@pytest.mark.asyncio
async def test_a_long_recording_read_at_once_is_shown_to_its_end():
    frames = [frame(at_s, sample(gpu_utilization_pct=at_s % 100)) for at_s in range(1000)]
    app = page(Made(*frames, ends=True))
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.state.has_ended)
        assert app.state.frames == 1000


@pytest.mark.asyncio
async def test_a_page_that_is_taken_down_is_not_drawn_any_more(monkeypatch):
    app = page(Made(frame(0, sample())))
    prune, drawn = app._prune, []

    async def pruned(*nodes, **more):  # a timer may come just then
        await prune(*nodes, **more)
        app.draw()
        drawn.append(nodes)

    async with app.run_test(size=(80, 24)) as pilot:
        await taken(1)(pilot)
        monkeypatch.setattr(app, "_prune", pruned)
    assert drawn
