"""What every page that gpuadvisor writes must be: well formed, and complete in itself."""

import re
from functools import lru_cache
from html.parser import HTMLParser

VOID = {"meta"}


class Page(HTMLParser):
    """Checks that tags are balanced, and collects what is in the page."""

    def __init__(self, content):
        super().__init__()
        self.open, self.tags, self.attributes, self.said = [], [], [], []
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.said.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.said).split())


parsed = lru_cache(maxsize=1)(Page)
"""The page of a content, for tests of one content that follow one another."""


def svgs(content):
    return re.findall(r"<svg.*?</svg>", content, re.DOTALL)


def is_alone(content):
    """Check that the page needs nothing from elsewhere, and may not ask for it."""
    page = parsed(content)
    assert not {"script", "link", "img", "iframe", "object", "image", "use"} & set(page.tags)
    assert not {"src", "href", "xlink:href", "srcset", "action"} & {a[1] for a in page.attributes}
    assert not any(name.startswith("on") for _, name, _ in page.attributes)
    assert not re.search(r"url\(|@import", content)
    assert ("meta", "content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


class Checks:
    """Tests for a class whose module has a fixture `content`."""

    def test_it_is_well_formed(self, content):
        assert content.startswith("<!DOCTYPE html>")
        assert {"title", "main", "h1", "style"} <= set(parsed(content).tags)

    def test_it_needs_nothing_else(self, content):
        is_alone(content)

    def test_no_coordinate_is_lost(self, content):
        drawn = re.sub(r"<(title|desc|text)[^>]*>[^<]*", "", "".join(svgs(content)))
        assert not re.search(r"\b(nan|inf)\b", drawn, re.IGNORECASE)

    def test_marks_stay_within_their_plot(self, content):
        for svg in svgs(content):
            width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups())
            for name, most in (("cx", width), ("x", width), ("cy", height), ("y", height)):
                found = [float(v) for v in re.findall(rf'\b{name}="(-?[\d.]+)"', svg)]
                assert all(0 <= value <= most for value in found), (name, found)

    def test_ids_are_unique(self, content):
        ids = [value for _, name, value in parsed(content).attributes if name == "id"]
        assert len(ids) == len(set(ids))

    def test_every_plot_can_be_read_by_those_who_cannot_see_it(self, content):
        for svg in svgs(content):
            title, desc = re.search(r'aria-labelledby="(\S+) (\S+)"', svg).groups()
            assert re.search(rf'<title id="{title}">[^<]+</title>', svg)
            assert re.search(rf'<desc id="{desc}">[^<]+</desc>', svg)
