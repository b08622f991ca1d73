"""What Prometheus calls our metrics: base units, and `_total` for counters alone.

See prometheus.io/docs/practices/naming.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuadvisor.domain.metrics import GPU_METRICS, HOST_METRICS, Kind, Metric

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


@dataclass(frozen=True)
class Exported:
    """A metric as it is exported."""

    metric: Metric
    name: str
    """Of a counter without its `_total`."""
    factor: float

    def in_base_unit(self, value: float) -> float:
        """Return a value in the unit of the name: 95 % as 0.95, and not as 0.9500000000000001."""
        return value * self.factor if self.factor >= 1 else value / round(1 / self.factor)

    @property
    def is_counter(self) -> bool:
        return self.metric.kind is Kind.COUNTER

    @property
    def full_name(self) -> str:
        """The name of the series."""
        return f"{self.name}_total" if self.is_counter else self.name


def exported(metric: Metric, of_host: bool = False) -> Exported:
    """Return a metric's name and factor."""
    name = metric.name
    prefix = PREFIX + ("host_" if of_host and not name.startswith("host_") else "")
    if metric.unit:
        for ours, theirs, factor in UNITS:
            if name.endswith(ours):
                return Exported(metric, prefix + name.removesuffix(ours) + theirs, factor)
    return Exported(metric, prefix + name, 1.0)


GPU_EXPORTED = tuple(exported(metric) for metric in GPU_METRICS)
HOST_EXPORTED = tuple(exported(metric, of_host=True) for metric in HOST_METRICS)
