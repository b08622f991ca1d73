"""Signals as requests to stop."""

import os
import signal

import pytest

from gpuadvisor.errors import Interrupted
from gpuadvisor.interruption import NUMBERS, at_once, stoppable, to_its_end


@pytest.fixture(autouse=True)
def usual_handlers():
    before = {number: signal.signal(number, signal.SIG_DFL) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_each_is_a_request_with_its_own_status(number):
    with stoppable() as stop:
        assert not stop.requested()
        os.kill(os.getpid(), number)
        assert stop.requested()
        assert stop.exit_status == 128 + number
    assert signal.getsignal(number) is signal.SIG_DFL


def test_the_second_does_not_wait():
    with stoppable():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_what_has_to_end_is_not_cut_short():
    with stoppable() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with to_its_end():
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.exit_status == 143
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_what_nohup_ignores_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stoppable() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert not stop.requested()


def test_where_nothing_is_lost_the_first_ends_it():
    with stoppable() as stop:
        with pytest.raises(Interrupted), at_once():
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop.exit_status == 143


def test_a_request_from_before_counts_there():
    with stoppable():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted), at_once():
            pytest.fail("the block began")
