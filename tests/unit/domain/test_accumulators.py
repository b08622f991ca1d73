"""Frames folded into what is known of each device, and the newest value of every metric."""

from gpuadvisor.domain.accumulators import Accumulator, Latest
from gpuadvisor.domain.telemetry import HOST, Frame, Gpu, GpuProcess, Sample, State, Unavailable

H100 = Gpu("GPU-0", 0, "H100")
PROCESS = GpuProcess("GPU-0", 71, "compute", None, None)


class Powers:
    """The powers of one device, in order."""

    def __init__(self):
        self.seen = []

    def add(self, frame, sample):
        self.seen.append((frame.time_s, sample.values.get("power_w")))


def frame(time_s, *, full=True, unavailable=None, **values):
    samples = {"GPU-0": Sample(values, unavailable or {}), HOST: Sample({"cpu_pct": 5.0})}
    return Frame(time_s, samples, full=full)


def test_each_device_has_a_state_of_its_own():
    made = Accumulator(Powers)
    for each in (frame(1.0, power_w=100), frame(2.0, power_w=200), Frame(3.0)):
        made.add(each)
    assert made.devices["GPU-0"].seen == [(1.0, 100), (2.0, 200)]
    assert made.devices[HOST].seen == [(1.0, None), (2.0, None)]


def test_the_machine_may_be_left_out():
    made = Accumulator(Powers, with_host=False)
    made.add(frame(1.0, power_w=100))
    assert set(made.devices) == {"GPU-0"}


def test_what_was_listed_last_stays():
    made = Accumulator(Powers)
    assert (made.gpus, made.listed, made.processes) == ((), None, None)
    made.add(Frame(1.0, gpus=(H100,), processes=(PROCESS,)))
    made.add(Frame(2.0))
    assert (made.gpus, made.processes) == ((H100,), (PROCESS,))
    made.add(Frame(3.0, gpus=(), processes=()))
    assert (made.gpus, made.processes) == ((), ())


def test_the_newest_value_is_ok_until_three_readings_are_overdue():
    latest = Latest()
    assert latest.reading("GPU-0", "power_w") is None
    latest.add(frame(1.0, power_w=100, temperature_c=50))
    latest.add(frame(2.0, full=False, power_w=200))
    assert (latest.value("GPU-0", "power_w"), latest.value("GPU-0", "temperature_c")) == (200, 50)
    late = latest.reading("GPU-0", "power_w", now_s=5.5)
    assert (late.value, late.state, late.since_s) == (200, State.STALE, 2.0)


def test_a_full_frame_says_what_is_unavailable_and_what_is_no_more():
    latest = Latest()
    latest.add(frame(1.0, power_w=100))
    stale = {"power_w": Unavailable(State.STALE, 1.0, "hangs")}
    lost = {"power_w": Unavailable(State.LOST, 1.0)}
    latest.add(frame(2.0, unavailable=stale))
    assert latest.reading("GPU-0", "power_w").value == 100
    assert latest.value("GPU-0", "power_w") is None
    latest.add(frame(3.0, full=False, unavailable=lost))
    assert latest.reading("GPU-0", "power_w").state is State.STALE
    latest.add(frame(4.0, unavailable=lost))
    assert latest.reading("GPU-0", "power_w").value is None
    latest.add(frame(5.0, power_w=300))
    assert latest.value("GPU-0", "power_w") == 300
