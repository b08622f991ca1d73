"""A clock for scripts whose figures a test knows: what a process does counts, not who else works.

Imported before a script's first line (`sitecustomize`), it makes `time.perf_counter` the CPU time
of the process and the time that it slept. A step that sleeps takes as long as it says then, however
busy the machine is; deadlines, which ask `time.monotonic`, stay what they are.
"""

import time

_sleep, _used_s = time.sleep, time.process_time
_began_s = time.perf_counter()
_slept_s = 0.0


def spend(seconds):
    """Let time pass for whoever asks `time.perf_counter`, in no time."""
    global _slept_s
    _slept_s += seconds


def sleep(seconds):
    _sleep(seconds)
    spend(seconds)


def perf_counter():
    return _began_s + _used_s() + _slept_s


def perf_counter_ns():
    return int(1e9 * perf_counter())


time.sleep, time.perf_counter, time.perf_counter_ns = sleep, perf_counter, perf_counter_ns
