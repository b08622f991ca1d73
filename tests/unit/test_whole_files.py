"""What a file has after a draft took its place, or did not."""

import os
import stat

import pytest

from gpuadvisor.whole_files import draft_of
from tests.disks import full_disk


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("before")
    return path


def test_on_a_full_disk_a_file_is_as_it_was(page):
    with full_disk(), pytest.raises(OSError), draft_of(page) as draft:
        draft.write_text("after")
    assert page.read_text() == "before"
    assert list(page.parent.iterdir()) == [page]


def test_a_link_stays_one_and_a_file_keeps_its_mode(page):
    page.chmod(0o600)
    link = page.with_name("newest.html")
    link.symlink_to(page)
    with draft_of(link) as draft:
        draft.write_text("after")
    assert link.is_symlink() and page.read_text() == "after"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


def test_what_is_no_file_is_written_itself(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with draft_of(tmp_path / "pipe") as draft:
        assert draft == tmp_path / "pipe"
