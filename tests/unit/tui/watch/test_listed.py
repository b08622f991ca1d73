"""What is printed for a terminal has the colours of the page's theme."""

import pytest
from rich.style import Style

from gpuadvisor.tui.watch.cells import Style as Meaning
from gpuadvisor.tui.watch.listed import printed, recoloured
from gpuadvisor.tui.watch.themes import LOOKS, TERMINAL


def told(console):
    console.print("1. critical: tf32_off", style="bold red")
    console.print("2. warning: uneven_ranks", style="yellow")
    console.print("faster", style="bold green")
    console.print("plain", style="bold")


@pytest.mark.parametrize("look", [look for look in LOOKS.values() if look is not TERMINAL])
def test_no_colour_of_the_terminal_is_left_in_another_theme(look):
    text = recoloured(printed(80, told), look)
    assert text.plain == printed(80, told).plain
    colours = [s.style.color.name for s in text.spans if getattr(s.style, "color", None)]
    known = [Style.parse(each).color for each in look.styles.values() if each]
    assert set(colours) <= {each.name for each in known if each}
    first = Style.parse(look.styles[Meaning.ERROR])
    assert any(span.style == first + Style(bold=True) for span in text.spans)


def test_the_terminals_own_colours_stay_what_they_are():
    text = printed(80, told)
    assert recoloured(text, TERMINAL) is text
