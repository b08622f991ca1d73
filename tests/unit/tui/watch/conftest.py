"""Pictures of the page against those that were accepted; `--snapshot-update` accepts anew."""

import re
import time

import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual._doc import take_svg_screenshot
from textual.css.stylesheet import Stylesheet

from gpuadvisor.daemon.endpoint import remote as remote_module
from tests.unit.tui.watch.several import Machines


@pytest.fixture(scope="session", autouse=True)
def styles_are_parsed_once():
    """Pages share the rules of CSS that Textual parses for each, a sixth of a page's time."""
    parse, known = Stylesheet._parse_rules, {}

    def once(sheet, css, **place):
        asked = (css, *place.items(), frozenset(sheet._variables.items()))
        if asked not in known:
            known[asked] = parse(sheet, css, **place)
        return known[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", once)
        yield


@pytest.fixture(autouse=True)
def same_everywhere(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    for name in ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_FILTERS"):
        monkeypatch.delenv(name, raising=False)
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def machines(monkeypatch):
    monkeypatch.setattr(remote_module, "SILENT_S", 1e6)  # however long a test takes
    made = Machines()
    yield made
    made.close()


class Picture(SingleFileSnapshotExtension):
    """An SVG file for each test."""

    file_extension = "svg"
    _write_mode = WriteMode.TEXT


@pytest.fixture
def snap_compare(snapshot):
    """A function that says whether a page looks as accepted, whatever number its drawing has."""
    picture = snapshot.use_extension(Picture)

    def compare(app, **options):
        drawn = take_svg_screenshot(app=app, **options)
        return picture == re.sub(r"\bterminal-\d+-([\w-]+)", r"terminal-\1", drawn)

    return compare
