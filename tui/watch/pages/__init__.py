"""The pages of `gpuadvisor watch`. Each module here is one, and is found by itself.

How to add one, with no edit elsewhere: write `tui/watch/pages/<name>.py` with a subclass of
`gpuadvisor.tui.watch.page.Page`, a Textual screen, and name it `PAGE`.

    class Charts(Page):
        KEY = "3"                      # opens it from everywhere; digits, in this order in the head
        NAME = "charts"                # as the head, the help and the command palette have it
        ABOUT = "Any metric over time." # one sentence for the help
        BINDINGS = [Binding("z", "zoom", "zoom in")]   # shown in the keys line and in the help;
                                       # show=False leaves it out of the keys line only
        DEFAULT_CSS = "..."            # of your own widgets

        @classmethod
        def unavailable(cls, watched):  # one sentence with the way out: shown instead of the page
            return None if watched.store else "Charts need a daemon: `gpuadvisor daemon start`."

        def compose_page(self):        # your widgets: between the head and the keys line
            yield Static(id="chart")

        def draw(self):                # new values came, a key changed something, or the size did;
            ...                        # change a widget only where its text has changed

    PAGE = Charts

`self.watched` (`gpuadvisor.tui.watch.watched.Watched`) is what all pages look at: `state` with the
newest values, processes, events and the last ten minutes; `store`, the folder for `TelemetryReader`
where a daemon's store can be read; `recording`; `remote`, where it is another machine's daemon that
tells; `hands_off`, why nothing may be done to processes; and `gpu`, the GPU that was chosen last:
set it where yours lets one choose. With several machines each has pages of its own. `draw` is
called about once a second on the page that is shown, and must take a few milliseconds: what reads
files or the network belongs into a thread (`self.run_worker` with `thread=True`). Import what is
heavy (plots, tables) inside of methods: every module here is imported, once the first values are
shown. Keys that all pages have are in `tui/watch/app.py`; of those that remain, take nvitop's where
it has one for it.

`gpuadvisor.tui.watch.cells` makes texts of values and of the lack of them. A `Style` of it says
what a text is, and the theme its colour: `self.rich(style)` gives it for Rich; in CSS use the
theme's variables.

Tests: `tests/unit/tui/watch/pages/`, driven by keys (`run_test`), with the text of the screen as
`tests/unit/tui/watch/screens.py` reads it.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from gpuadvisor.tui.watch.page import Page


def load() -> list[type[Page]]:
    """Return the pages in the order of their keys.

    Raises:
        TypeError: if a module here has no page, or two have one key.
    """
    found: dict[str, type[Page]] = {}
    for module in pkgutil.iter_modules(__path__):
        page = getattr(import_module(f"{__name__}.{module.name}"), "PAGE", None)
        if not (isinstance(page, type) and issubclass(page, Page)):
            raise TypeError(f"{__name__}.{module.name} has no PAGE, a subclass of Page")
        if page.KEY in found:
            raise TypeError(f"{page.NAME} and {found[page.KEY].NAME} have the same key")
        found[page.KEY] = page
    return [found[key] for key in sorted(found)]
