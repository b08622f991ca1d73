"""What pages of managed memory cost: never more than the account has of it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.profile import Direction, Memory
from gpuadvisor.rules.facts.idle import Cause
from gpuadvisor.rules.facts.migrations import migrations
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
    assert found.waiting_ns == idle.causes_ns[Cause.MIGRATING] >= found.for_host_ns >= 0
    assert 0 <= found.alone_ns <= idle.causes_ns[Cause.COPYING]
    assert found.alone_ns <= found.moving_ns
    assert found.exposed_ns + found.inside_ns <= facts.window.run_ns
    for name, time_ns in found.in_kernels_ns.items():
        assert time_ns <= account.kernels_ns[name]
    assert found.bytes == 4096 * len(moved) >= found.bytes_to_gpu
