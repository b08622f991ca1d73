"""The table on the page: a line for each GPU."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import DataTable

from gpuadvisor.tui.watch import columns
from gpuadvisor.tui.watch.board import Board
from gpuadvisor.tui.watch.tones import STYLES, Tone


class GpuTable(DataTable[Text]):
    """Redraws only what has changed, so that the cursor and the scroll position stay."""

    def __init__(self, board: Board) -> None:
        super().__init__(id="gpus", cursor_type="row", cell_padding=0)
        self._board = board
        self._layout: object = None
        self._shown: dict[tuple[str, str], tuple[str, Tone]] = {}

    @property
    def selected(self) -> str | None:
        """The UUID of the GPU under the cursor."""
        place = self.cursor_row
        return self._board.gpus[place].uuid if 0 <= place < len(self._board.gpus) else None

    def redraw(self) -> None:
        board = self._board
        placed = columns.chosen(board, self.scrollable_content_region.width)
        titles = [(column.title(board), column.width) for column in placed]
        layout = (titles, [gpu.uuid for gpu in board.gpus])
        cells = {
            (gpu.uuid, str(place)): column.cell(board, gpu)
            for gpu in board.gpus
            for place, column in enumerate(placed)
        }
        if layout != self._layout:
            self._layout = layout
            self._rebuild(titles, cells)
        else:
            for (row, column_key), cell in cells.items():
                if self._shown.get((row, column_key)) != cell:
                    self.update_cell(row, column_key, _text(cell))
        self._shown = cells

    def _rebuild(
        self, titles: list[tuple[str, int]], cells: dict[tuple[str, str], tuple[str, Tone]]
    ) -> None:
        cursor = self.cursor_row
        self.clear(columns=True)
        for place, (title, width) in enumerate(titles):
            gap = columns.GAP if place < len(titles) - 1 else 0
            self.add_column(Text(title), width=width + gap, key=str(place))
        for gpu in self._board.gpus:
            row = [_text(cells[gpu.uuid, str(place)]) for place in range(len(titles))]
            self.add_row(*row, key=gpu.uuid)
        self.move_cursor(row=cursor, animate=False)


def _text(cell: tuple[str, Tone]) -> Text:
    text, tone = cell
    return Text(text, style=STYLES[tone], no_wrap=True)
