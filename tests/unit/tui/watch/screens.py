"""What is on the screen of a page under test, as text."""


def screen_text(app):
    """The lines of the screen, without the blanks at their ends."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)
