"""What the keys do and what the signs mean."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

TEXT = """\
q       end, always; Ctrl-C as well
m       draw the next metric over time
Enter   show or hide all of a GPU
Up, Down  choose the GPU; Tab goes to the events
?       this help; any key leaves it

…        not read yet
n/a      this GPU or driver does not have it
no perm  the driver does not allow it
stale    it had a value, but the driver
         does not answer: for how long
lost     the GPU is gone from the bus
?        beside a value: the other is unknown

A picture's blank stands for no reading; zero
is its lowest block. Rates are in bytes/s."""


class Help(ModalScreen[None]):
    """Covers the page until a key is pressed."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Static(TEXT, markup=False)

    def on_key(self) -> None:
        self.dismiss()

    def on_click(self) -> None:
        self.dismiss()
