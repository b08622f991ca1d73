"""What is on the screen of a page under test, as text, and how tests wait for it."""

import time

PATIENCE_S = 120.0
"""Ends what never comes about, however busy the machine is."""


def screen_text(app):
    """The lines of the screen, without the blanks at their ends."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


async def until(pilot, is_true):
    """Wait for what a thread brings about."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline, screen_text(pilot.app)
        await pilot.pause(0.02)
    await pilot.pause()


async def shown(pilot, *texts):
    """Wait until these are on the screen."""
    await until(pilot, lambda: all(text in screen_text(pilot.app) for text in texts))
