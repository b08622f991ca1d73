"""Stores of telemetry for tests, at times that never change."""

from gpuadvisor.storage.telemetry.reader import TelemetryReader
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.telemetry import START_S


class Clock:
    def __init__(self, now_s=START_S):
        self.now_s = now_s

    def __call__(self):
        return self.now_s


def stored(folder, *frames, events=(), clock=None, **options):
    with TelemetryWriter(folder, clock=clock or Clock(frames[-1].time_s), **options) as writer:
        writer.append(frames, events)
        writer.tend()
    return TelemetryReader(folder)
