"""What a scrape sees, from the newest frame. Only imported where the endpoint is on.

Names follow prometheus.io/docs/practices/naming: base units, and `_total` for counters alone.
A value that is not OK is absent, and `gpuadvisor_metric_state` says why; nothing is ever made zero.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from gpuadvisor.daemon.alerts import host
from gpuadvisor.daemon.configuration import Prometheus
from gpuadvisor.daemon.configured_values import KINDS
from gpuadvisor.daemon.endpoint.exposition_text import labelled
from gpuadvisor.daemon.figures import Figures
from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.clock_reasons import SLOWING
from gpuadvisor.domain.metrics import GPU_METRICS, HOST_METRICS, Kind, Metric
from gpuadvisor.domain.severity import EVENT_SEVERITIES
from gpuadvisor.domain.telemetry import HOST, Event, Gpu
from gpuadvisor.version import __version__

PREFIX = "gpuadvisor_"

UNITS: tuple[tuple[str, str, float], ...] = (
    ("_bytes_per_s", "_bytes_per_second", 1.0),
    ("_bytes", "_bytes", 1.0),
    ("_pct", "_ratio", 0.01),
    ("_mhz", "_hertz", 1e6),
    ("_w", "_watts", 1.0),
    ("_j", "_joules", 1.0),
    ("_c", "_celsius", 1.0),
    ("_s", "_seconds", 1.0),
)
"""The end of our names, that of Prometheus' names, and the factor between the two."""
_PER_KIB = 1 / 1024
DCGM_RATES = (
    (
        "DCGM_FI_DEV_PCIE_TX_THROUGHPUT",
        "KiB/s that the GPU sends over PCIe",
        ("pcie_tx_bytes_per_s",),
        _PER_KIB,
    ),
    (
        "DCGM_FI_DEV_PCIE_RX_THROUGHPUT",
        "KiB/s that the GPU receives over PCIe",
        ("pcie_rx_bytes_per_s",),
        _PER_KIB,
    ),
    (
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "1000 KiB/s over all NVLink links in both directions",
        ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"),
        _PER_KIB / 1000,
    ),
)
"""Fields of dcgm-exporter's default counters that its values come a second time in: the name, the
meaning, the metrics of ours that are summed up, and the factor. Its list calls them counters, but
DCGM gives rates (NVIDIA/dcgm-exporter#658, where the unit of the last is explained too)."""
PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
GPU_LABELS = ("gpu", "uuid", "name")
DRIVER_VERSION = Path("/sys/module/nvidia/version")
Families: TypeAlias = Iterator[Family]


@dataclass(frozen=True)
class Exported:
    """A metric of ours under the name and in the unit of Prometheus."""

    metric: Metric
    name: str
    """The metric's name in Prometheus; of a counter without its `_total`."""
    factor: float

    def in_base_unit(self, value: float) -> float:
        """Return a value in the unit of the name: 95 % as 0.95, and not as 0.9500000000000001."""
        return value * self.factor if self.factor >= 1 else value / round(1 / self.factor)

    @property
    def is_counter(self) -> bool:
        return self.metric.kind is Kind.COUNTER

    @property
    def full_name(self) -> str:
        """The name of the series in Prometheus, with `_total` for counters."""
        return f"{self.name}_total" if self.is_counter else self.name


def exported(metric: Metric, of_host: bool = False) -> Exported:
    """Return a metric of ours with its name in Prometheus and the factor between the units."""
    name = metric.name
    prefix = PREFIX + ("host_" if of_host and not name.startswith("host_") else "")
    if metric.unit:
        for ours, theirs, factor in UNITS:
            if name.endswith(ours):
                return Exported(metric, prefix + name.removesuffix(ours) + theirs, factor)
    return Exported(metric, prefix + name, 1.0)


GPU_EXPORTED = tuple(exported(metric) for metric in GPU_METRICS)
HOST_EXPORTED = tuple(exported(metric, of_host=True) for metric in HOST_METRICS)


@dataclass(frozen=True)
class SelfMetrics:
    """What one process of gpuadvisor costs the machine since it began."""

    process: str
    """`daemon` or `sampler`."""
    cpu_s: float
    resident_bytes: int


def self_metrics() -> list[SelfMetrics]:
    """Return the cost of this process and of its children, which are the sampler alone."""
    return [cost for process, pid in _own_processes() if (cost := _cost(process, pid))]


def _own_processes() -> Iterator[tuple[str, int]]:
    yield "daemon", os.getpid()
    # A child belongs to the thread that began it.
    for children in PROC.glob(f"{os.getpid()}/task/*/children"):
        try:
            yield from (("sampler", int(pid)) for pid in children.read_text().split())
        except OSError:  # the thread ended
            continue


def _cost(process: str, pid: int) -> SelfMetrics | None:
    try:
        # The name, in parentheses, may have spaces and parentheses in it (proc_pid_stat(5)).
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    ticks = int(fields[11]) + int(fields[12])
    return SelfMetrics(process, ticks / TICKS_PER_S, pages * PAGE_BYTES)


class Exposition(Collector):
    """The collector for scrapes, which reads `figures` when it is asked."""

    def __init__(
        self, figures: Figures, chosen: Prometheus, clock: Callable[[], float] = time.time
    ) -> None:
        self._figures = figures
        self._chosen = chosen
        self._clock = clock

    def collect(self) -> Iterable[Family]:
        with self._figures.lock:
            return [family for family in self._families() if family.samples]

    def describe(self) -> Iterable[Family]:
        return ()  # else the registry collects once to learn the names

    def _families(self) -> Families:
        now_s, latest = self._clock(), self._figures.latest
        yield from _gpu_families(latest, now_s)
        yield _states(latest, now_s)
        yield _throttled(latest, now_s)
        yield from _infos(latest)
        if self._chosen.host_metrics:
            yield from _host_families(latest, now_s)
        if self._chosen.processes:
            yield from _process_families(latest, now_s)
        if self._chosen.dcgm_names:
            yield from _dcgm_families(latest, now_s, self._figures.last_xid)
        yield from _event_families(self._figures.began, self._figures.open)
        yield _xid_family(latest, self._figures.xids)
        yield from _own_families(self._figures)


def _family(
    name: str,
    text: str,
    samples: Iterable[tuple[Sequence[str], float]],
    labels: Sequence[str] = (),
    is_counter: bool = False,
) -> Family:
    """Return a metric of ours with its samples, each of which has the values of the labels."""
    kind = CounterMetricFamily if is_counter else GaugeMetricFamily
    family = kind(name, f"{text}.", labels=labels)
    full_name, names = family.name + "_total" * is_counter, tuple(labels)
    family.samples = [
        Sample(full_name, labelled(names, tuple(values)), number) for values, number in samples
    ]
    return family


def _labels(gpu: Gpu) -> tuple[str, str, str]:
    return str(gpu.index), gpu.uuid, gpu.name


def _known(latest: Latest, metric: str, now_s: float) -> Iterator[tuple[Gpu, float]]:
    """Yield the GPUs of which this metric has a value now, each with it."""
    for gpu in latest.gpus:
        value = latest.value(gpu.uuid, metric, now_s)
        if value is not None:
            yield gpu, value


def _gpu_families(latest: Latest, now_s: float) -> Families:
    for each in GPU_EXPORTED:
        known = _known(latest, each.metric.name, now_s)
        samples = ((_labels(gpu), each.in_base_unit(value)) for gpu, value in known)
        yield _family(each.name, each.metric.help, samples, GPU_LABELS, each.is_counter)


def _states(latest: Latest, now_s: float) -> Family:
    samples = [
        ((*_labels(gpu), each.full_name, str(reading.state)), 1)
        for gpu in latest.gpus
        for each in GPU_EXPORTED
        if latest.value(gpu.uuid, each.metric.name, now_s) is None
        and (reading := latest.reading(gpu.uuid, each.metric.name, now_s))
    ]
    text = "1 for each metric that has no value now, with the reason as its state"
    return _family(f"{PREFIX}metric_state", text, samples, (*GPU_LABELS, "metric", "state"))


def _throttled(latest: Latest, now_s: float) -> Family:
    samples = [
        ((*_labels(gpu), reason.name), int(bool(int(mask) & reason.bit)))
        for gpu, mask in _known(latest, "throttle_reasons", now_s)
        for reason in SLOWING.values()
    ]
    text = "Whether the clocks are held down for this reason (1 or 0)"
    return _family(f"{PREFIX}throttled", text, samples, (*GPU_LABELS, "reason"))


def _host_families(latest: Latest, now_s: float) -> Families:
    for each in HOST_EXPORTED:
        value = latest.value(HOST, each.metric.name, now_s)
        samples = [] if value is None else [((), each.in_base_unit(value))]
        yield _family(each.name, each.metric.help, samples, is_counter=each.is_counter)


def _process_families(latest: Latest, now_s: float) -> Families:
    by_uuid = {gpu.uuid: gpu for gpu in latest.gpus}
    sums: dict[tuple[str, ...], float] = {}  # a process may compute and draw at once
    for process in latest.processes_at(now_s) or ():
        gpu = by_uuid.get(process.gpu)
        if gpu is None or process.memory_bytes is None:
            continue
        texts = (process.name or "", process.user or "", process.container or "")
        key: tuple[str, ...] = (*_labels(gpu), str(process.pid), *texts)
        sums[key] = max(sums.get(key, 0), process.memory_bytes)
    labels = (*GPU_LABELS, "pid", "process", "user", "container")
    text = "Device memory of a process"
    yield _family(f"{PREFIX}process_memory_bytes", text, sums.items(), labels)


def _dcgm_families(latest: Latest, now_s: float, last_xid: Mapping[str, int]) -> Families:
    """Return the names and labels of NVIDIA's dcgm-exporter, for boards that were made for it.

    Its counters lack the `_total` that OpenMetrics wants of counters, so theirs are untyped.
    """
    version = driver_version()

    def family(name: str, text: str, known: Iterable[tuple[Gpu, float]], kind: str) -> Family:
        made = Family(name, f"{text}.", kind)
        for gpu, value in known:
            labels = {
                "gpu": str(gpu.index),
                "UUID": gpu.uuid,
                "pci_bus_id": gpu.pci_bus_id or "",
                "device": f"nvidia{gpu.index}",
                "modelName": gpu.name,
                "Hostname": host(),
                "DCGM_FI_DRIVER_VERSION": version,
            }
            made.add_sample(name, labels, value)
        return made

    for each in GPU_EXPORTED:
        metric = each.metric
        if metric.dcgm is not None:
            known = _known(latest, metric.name, now_s)
            scaled = ((gpu, value * metric.dcgm_factor) for gpu, value in known)
            yield family(
                metric.dcgm, metric.help, scaled, "unknown" if each.is_counter else "gauge"
            )
    for name, text, metrics, factor in DCGM_RATES:
        columns = [dict(_known(latest, each, now_s)) for each in metrics]
        whole = [gpu for gpu in latest.gpus if all(gpu in column for column in columns)]
        sums = ((gpu, factor * sum(column[gpu] for column in columns)) for gpu in whole)
        yield family(name, text, sums, "gauge")
    text = "Number of the last Xid error since the daemon began, 0 for none"
    xids = ((gpu, last_xid.get(gpu.uuid, 0)) for gpu in latest.gpus if not gpu.is_instance)
    yield family("DCGM_FI_DEV_XID_ERRORS", text, xids, "gauge")


def _infos(latest: Latest) -> Families:
    about = InfoMetricFamily(f"{PREFIX}build", "Which gpuadvisor this is.")
    about.add_metric((), {"version": __version__})
    yield about
    driver = InfoMetricFamily(f"{PREFIX}driver", "The NVIDIA driver that is loaded.")
    if version := driver_version():
        driver.add_metric((), {"version": version})
    yield driver
    gpus = InfoMetricFamily(f"{PREFIX}gpu", "What each GPU is.", labels=GPU_LABELS)
    for gpu in latest.gpus:
        capability = gpu.compute_capability
        values = {
            "pci_bus_id": gpu.pci_bus_id or "",
            "compute_capability": ".".join(map(str, capability)) if capability else "",
            "parent_uuid": gpu.parent_uuid or "",
        }
        gpus.add_metric(_labels(gpu), values)
    yield gpus


def driver_version() -> str:
    """Return the loaded driver's version, asked of the kernel as NVML may hang; else empty."""
    try:
        return DRIVER_VERSION.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def _event_families(began: Mapping[str, int], lasting: Sequence[Event]) -> Families:
    counts = [((kind,), began.get(kind, 0)) for kind in sorted({*KINDS, *began})]
    text = "Events since the daemon began"
    yield _family(f"{PREFIX}events", text, counts, ("kind",), is_counter=True)
    now = [
        ((str(severity),), sum(event.severity is severity for event in lasting))
        for severity in EVENT_SEVERITIES
    ]
    yield _family(f"{PREFIX}events_open", "Events that last now", now, ("severity",))


def _xid_family(latest: Latest, xids: Mapping[tuple[str, int], int]) -> Family:
    gpus = {gpu.uuid: gpu for gpu in latest.gpus}
    counts = [
        ((*_labels(gpus[uuid]), str(number)), count)
        for (uuid, number), count in sorted(xids.items())
        if uuid in gpus
    ]
    text = "Xid errors since the daemon began, by their number"
    return _family(f"{PREFIX}xid_errors", text, counts, (*GPU_LABELS, "xid"), is_counter=True)


def _own_families(figures: Figures) -> Families:
    def single(name: str, text: str, value: float, *, is_counter: bool = False) -> Family:
        return _family(PREFIX + name, text, [((), value)], is_counter=is_counter)

    up = int(figures.latest.problem is None and figures.frames > 0)
    yield single("driver_up", "Whether the driver answers (1 or 0)", up)
    if figures.frames:
        text = "Unix time of the newest frame"
        yield single("last_frame_timestamp_seconds", text, figures.latest.time_s)
    text = "Frames since the daemon began"
    yield single("daemon_frames", text, figures.frames, is_counter=True)
    yield single("daemon_frames_waiting", "Frames that are not stored yet", figures.waiting)
    cpu_s: dict[tuple[str], float] = defaultdict(float)
    resident_bytes: dict[tuple[str], float] = defaultdict(float)
    for cost in self_metrics():
        cpu_s[(cost.process,)] += cost.cpu_s
        resident_bytes[(cost.process,)] += cost.resident_bytes
    of_process, text = ("process",), "CPU time of gpuadvisor"
    yield _family(f"{PREFIX}daemon_cpu_seconds", text, cpu_s.items(), of_process, is_counter=True)
    name, text = f"{PREFIX}daemon_resident_memory_bytes", "Memory of gpuadvisor"
    yield _family(name, text, resident_bytes.items(), of_process)
