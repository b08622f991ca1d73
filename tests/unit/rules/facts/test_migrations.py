"""What pages of managed memory cost: never more than the account has of it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.profile import CallKind, Direction, Memory
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.migrations import migrations, waiting_in_kernels_ns
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made

TIMES = st.tuples(st.integers(0, 2000), st.integers(1, 300))


@settings(max_examples=20)
@given(
    st.lists(TIMES, max_size=6), st.lists(st.tuples(TIMES, st.booleans()), min_size=1, max_size=8)
)
def test_the_parts_are_within_the_account(kernels, moved):
    made = Made()
    for number, (begin, took) in enumerate(kernels):
        made.launched(f"k{number % 2}", (begin, 1), (begin + 5, took), stream=number % 3)
    for runs, to_gpu in moved:
        ends = (Memory.MANAGED, Memory.DEVICE) if to_gpu else (Memory.DEVICE, Memory.MANAGED)
        made.copy(
            runs, direction=Direction.MIGRATION, source=ends[0], destination=ends[1], bytes=4096
        )
    facts = Facts(made.profile())
    (found,) = migrations(facts.work, facts.idle)
    (account,), (idle,) = facts.account.devices, facts.idle
    assert found.waiting_ns == idle.causes_ns[Cause.MIGRATING]
    assert found.host_ns >= 0 and found.waiting_ns <= 50_000 * len(found.rows)
    assert 0 <= found.alone_ns <= idle.causes_ns[Cause.COPYING]
    assert found.alone_ns <= found.moving_ns
    assert found.exposed_ns + found.inside_ns <= facts.window.run_ns
    assert found.inside_ns + found.unseen_ns <= found.kernels_ns
    for name, time_ns in found.in_kernels_ns.items():
        assert time_ns <= account.kernels_ns[name]
    assert found.bytes == 4096 * len(moved) >= found.bytes_to_gpu >= found.bytes_asked_in_kernels
    waits = waiting_in_kernels_ns(facts.work, np.arange(facts.work.kernels))
    assert ((waits >= 0) & (waits <= facts.work.duration_ns[: facts.work.kernels])).all()


def test_what_the_host_does_for_long_between_two_pages_is_its_own():
    """Arrays that were prefetched, a short kernel, and a host that checks results page by page."""
    made = Made()
    prefetched = {"source": Memory.MANAGED, "destination": Memory.DEVICE, "bytes": 1 << 20}
    back = {"source": Memory.DEVICE, "destination": Memory.MANAGED, "bytes": 1 << 16}
    for number in range(10):
        made.copy((100.0 * number, 100), direction=Direction.MIGRATION, **prefetched)
    made.launched("add", (900, 5), (1_000, 500))
    for number in range(20):
        made.copy((2_500 + 1_000.0 * number, 10), direction=Direction.MIGRATION, **back)
    facts = Facts(made.profile())
    (found,), (idle,) = migrations(facts.work, facts.idle), facts.idle
    assert found.waiting_ns == 20 * 50_000
    assert found.host_ns == 950_000 + 19 * 940_000 == idle.causes_ns[Cause.NOT_RECORDED]
    assert (found.bytes_to_gpu, found.bytes_asked_in_kernels) == (10 << 20, 0)
    assert not waiting_in_kernels_ns(facts.work, np.arange(1)).any()


def test_a_host_that_allocates_before_a_page_moves_does_nothing_else():
    made = Made()
    made.launched("add", (0, 5), (10, 500))
    made.call("cudaMalloc", (600, 1_000), CallKind.ALLOCATE)
    made.copy((2_000, 10), direction=Direction.MIGRATION, source=Memory.DEVICE, bytes=4096)
    (idle,) = Facts(made.profile()).idle
    assert idle.causes_ns[Cause.ALLOCATING] == 1_000_000
    assert idle.causes_ns[Cause.MIGRATING] == 50_000
    assert idle.causes_ns[Cause.NOT_RECORDED] == 2_000_000 - 510_000 - 1_050_000
