"""Memory that a forked process shares, and what it copies by looking at objects."""

import os
import sys

import pytest

from gpuadvisor.collectors.script.child.rehearsal.memory import available_bytes, shared_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_looking_at_objects_copies_their_memory():
    objects = [float(n) for n in range(1_000_000)]  # 24 MB, in lists of 8 MB
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        before = shared_bytes()
        for each in objects[:500_000]:
            kept = each
        del kept
        os.write(writing, f"{before} {shared_bytes()}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    before, after = map(int, os.read(reading, 100).split())
    os.close(reading)
    os.close(writing)
    assert before > 24e6
    assert 12e6 <= before - after < 24e6


def test_what_is_left_is_no_more_than_the_machine_has():
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < available_bytes() <= machine
