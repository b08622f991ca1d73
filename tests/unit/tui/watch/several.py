"""Several machines to watch: each an endpoint over real HTTP, of frames made by hand."""

from gpuadvisor.daemon.endpoint.remote import Remote
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.watched import Watched
from tests.endpoint import Endpoint
from tests.telemetry import START_S, frame, sample

IDLE = sample(gpu_utilization_pct=0, memory_used_bytes=0)
XID = Event(
    "xid", START_S, "GPU 1 reported Xid 79: reboot.", Severity.ERROR, "GPU-1", data={"xid": 79}
)


class Machines:
    """Endpoints by name, closed together."""

    def __init__(self):
        self.endpoints = {}

    def add(self, name, *samples, events=(), **chosen):
        """Return what watches a machine that has read these samples; without any, it has gone."""
        there = self.endpoints[name] = Endpoint(name, **chosen)
        if samples:
            there.take(frame(0, *samples, events=events))
        else:
            there.close()
        remote = Remote(there.host(), clock=lambda: 0.0)
        state = WatchState("daemon", host=name, has_all_events=True, clock=lambda: 0.0)
        return Watched(remote, state, remote=remote)

    def trouble(self):
        """Three machines: one idles, one has a broken GPU, and one has gone."""
        return [
            self.add("quiet", IDLE, IDLE),
            self.add("broken", sample(), sample(), events=(XID,)),
            self.add("gone"),
        ]

    def lose(self, name):
        """Have a machine go."""
        self.endpoints.pop(name).close()

    def close(self):
        for name in list(self.endpoints):
            self.lose(name)
