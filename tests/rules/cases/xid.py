"""Xid errors of this GPU, of another one, and other events."""

from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event
from tests.rules.machines import GPU, OTHER, START_S, machine


def xid(number, severity=Severity.ERROR, gpu=GPU.uuid, kind="xid"):
    message = f"GPU 0 reported Xid {number}: start it again."
    return Event(kind, START_S, message, severity, gpu, START_S, str(number), {"xid": number})


FIRES = {
    "one": lambda: machine((60, {}), events=(xid(79),)),
    "several of two kinds": lambda: machine((9, {}), events=(xid(31), xid(31), xid(13))),
    "one that matters little": lambda: machine((60, {}), events=(xid(45, Severity.INFO),)),
}
SILENT = {
    "none": lambda: machine((60, {})),
    "another GPU's": lambda: machine((60, {}), events=(xid(79, gpu=OTHER.uuid),)),
    "another event": lambda: machine((60, {}), events=(xid(0, kind="sampler"),)),
}
