"""Lines on a page: as many as there are, of which those on the screen are made."""

import pytest
from textual.app import App

from gpuadvisor.tui.watch.cells import Style
from gpuadvisor.tui.watch.lines import Lines, MadeLines
from tests.unit.tui.watch.screens import screen_text


class Page(App):
    CSS = "#lines { height: 1fr; }"
    theme = "textual-dark"

    def compose(self):
        yield Lines("lines")


def counted(made, word):
    def make(number):
        made.append(number)
        return [(f"{word} {number}", Style.PLAIN)]

    return MadeLines(make, 10_000)


@pytest.mark.asyncio
async def test_only_what_is_on_the_screen_is_made():
    made = []
    async with Page().run_test(size=(40, 10)) as pilot:
        lines = pilot.app.query_one(Lines)
        lines.show(counted(made, "old"), 0)
        await pilot.pause()
        lines.show(counted(made, "new"), 0)
        await pilot.pause()
        assert "new 9" in screen_text(pilot.app)
        assert set(made) == set(range(10))
        lines.show(counted(made, "last"), 9_999)
        await pilot.pause()
        assert screen_text(pilot.app).splitlines()[-1].split()[:2] == ["last", "9999"]
        assert len(set(made)) <= 30
        lines.show([[("one", Style.PLAIN)]])
        await pilot.pause()
        assert screen_text(pilot.app).split() == ["one"]


def test_they_are_a_sequence():
    made = []
    lines = counted(made, "line")
    assert (len(lines), lines[3], lines[-1]) == (
        10_000, [("line 3", Style.PLAIN)], [("line 9999", Style.PLAIN)]
    )  # fmt: skip
    assert lines[1:3] == [lines[1], lines[2]]
    assert made == [3, 9999, 1, 2]
    with pytest.raises(IndexError):
        lines[10_000]
