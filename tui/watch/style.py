"""How the page is laid out, as Textual's CSS, in the terminal's own colours."""

CSS = """
Screen { overflow: hidden; background: ansi_default; color: ansi_default; }
#heading { height: 1; text-style: bold; }
#notice { height: auto; max-height: 3; color: ansi_yellow; text-style: bold; }
#gpus { height: auto; max-height: 70%; }
#gpus.-beside-details { max-height: 40%; }
#gpus, #gpus > .datatable--header, #gpus > .datatable--cursor, #gpus:focus > .datatable--cursor,
#gpus > .datatable--hover, #gpus > .datatable--header-hover, #gpus > .datatable--even-row,
#gpus > .datatable--odd-row { background: ansi_default; color: ansi_default; }
#gpus > .datatable--header { text-style: underline; }
#gpus > .datatable--cursor { text-style: bold; }
#gpus:focus > .datatable--cursor { text-style: reverse; }
#details, #events { border-top: solid ansi_blue; background: ansi_default; }
#details { height: auto; max-height: 60%; }
#events { height: 1fr; min-height: 3; }
#keys { dock: bottom; height: 1; text-style: dim; }
#gpus, #details, #events, Help > VerticalScroll {
    scrollbar-size-vertical: 1;
    scrollbar-color: ansi_blue; scrollbar-color-hover: ansi_blue;
    scrollbar-color-active: ansi_blue; scrollbar-background: ansi_default;
    scrollbar-background-hover: ansi_default; scrollbar-background-active: ansi_default;
}
Help { align: center middle; background: ansi_default; }
Help > VerticalScroll {
    width: 52; max-width: 100%; height: auto; max-height: 100%;
    border: solid ansi_blue; padding: 0 1;
}
"""
