"""How what is shown looks: the terminal's own colours, dark, light, colour-blind safe, or none.

A colour only repeats what a word or a bar's length says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuadvisor.tui.watch.cells import Style

if TYPE_CHECKING:
    from textual.theme import Theme


@dataclass(frozen=True)
class Look:
    """A theme: its colours, and Rich's words for each style."""

    name: str
    about: str
    background: str
    foreground: str
    line: str
    """The colour of lines and scroll bars."""
    styles: Mapping[Style, str]
    is_dark: bool = True

    def theme(self) -> Theme:
        """Return it as Textual has it."""
        from textual.theme import BUILTIN_THEMES, Theme

        if self.background == "ansi_default":
            return replace(BUILTIN_THEMES["ansi-dark"], name=self.name, primary=self.line)
        return Theme(
            self.name,
            primary=self.line,
            foreground=self.foreground,
            background=self.background,
            surface=self.background,
            panel=self.background,
            dark=self.is_dark,
        )


def _look(
    name: str,
    about: str,
    background: str,
    foreground: str,
    line: str,
    quiet: str,
    *loads: str,
    good: str,
    warning: str,
    error: str,
    accent: str,
    is_dark: bool = True,
) -> Look:
    light, moderate, heavy = loads
    styles = {
        Style.PLAIN: "",
        Style.TITLE: "bold",
        Style.QUIET: quiet,
        Style.GOOD: good,
        Style.WARNING: warning,
        Style.ERROR: error,
        Style.ACCENT: accent,
        Style.IDLE: quiet,
        Style.LIGHT: light,
        Style.MODERATE: moderate,
        Style.HEAVY: heavy,
    }
    return Look(name, about, background, foreground, line, styles, is_dark)


TERMINAL = _look(
    "terminal",
    "the terminal's own colours",
    "ansi_default",
    "ansi_default",
    "ansi_blue",
    "dim",
    "blue",
    "cyan",
    "green",
    good="green",
    warning="yellow",
    error="bold red",
    accent="cyan",
)
LOOKS = {
    look.name: look
    for look in (
        TERMINAL,
        _look(
            "dark",
            "light on dark",
            "#101418",
            "#e6e6e6",
            "#3d6d99",
            "#8a939c",
            "#5c9ddb",
            "#4fc1c9",
            "#6fcf6f",
            good="#6fcf6f",
            warning="#f2c14e",
            error="bold #ff6b6b",
            accent="#7fb8ea",
        ),
        _look(
            "light",
            "dark on light",
            "#ffffff",
            "#1c1c1c",
            "#5b7ea3",
            "#666e76",
            "#2f6db3",
            "#0b7a84",
            "#1f7a1f",
            is_dark=False,
            good="#1f7a1f",
            warning="#8a5a00",
            error="bold #b00020",
            accent="#1f5f99",
        ),
        # The palette of Okabe and Ito (2008), whose colours most people tell apart.
        _look(
            "colour-blind",
            "colours that nearly all eyes tell apart",
            "#000000",
            "#f0f0f0",
            "#0072b2",
            "#999999",
            "#0072b2",
            "#56b4e9",
            "#f0e442",
            good="#56b4e9",
            warning="#e69f00",
            error="bold #d55e00",
            accent="#56b4e9",
        ),
        _look(
            "mono",
            "no colours, only bold and dim",
            "ansi_default",
            "ansi_default",
            "ansi_default",
            "dim",
            "",
            "",
            "bold",
            good="",
            warning="bold",
            error="bold underline",
            accent="",
        ),
    )
}
"""All themes by name, the default first."""
