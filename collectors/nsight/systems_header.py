"""What an Nsight Systems export tells of the recording as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuadvisor.collectors.nsight.sqlite_export import Export
from gpuadvisor.collectors.nsight.systems_reading import FARTHEST_NS

METADATA = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""The second is what schemas before 3.13 call it."""
_MOST_FACTS = 10_000
_LONGEST_FACT = 1000  # characters
_TOLD = (
    "EXPORT_PRODUCT_NAME", "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION",
    "PROCESS_0:COMMAND", "CpuDescription", "CpuCores", "OsDescription", "Hostname",
    "CudaDriverVersion", "NvDriverVersion",
)  # fmt: skip
"""Names of what is kept. The rest includes the environment variables of the user's programs."""
_NVTX = "COLLECT_NVTX_TRACE"
_ERROR = 3
"""Of ENUM_DIAGNOSTIC_SEVERITY_LEVEL."""
_MOST_ERRORS = 5
_LONGEST_ERROR = 300  # characters


class Told:
    """The tables of names and values: of the export, the recording and the machine."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._values: dict[str, str] = {}
        for table in (*METADATA, "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV"):
            for name, value in export.first_rows(table, ("name", "value"), _MOST_FACTS):
                if isinstance(name, str) and isinstance(value, (str, int)):
                    self._values.setdefault(name, str(value))

    @property
    def tool(self) -> str:
        """Who wrote the file, with its version."""
        parts = (self._values.get(f"EXPORT_PRODUCT_{part}", "") for part in ("NAME", "VERSION"))
        return " ".join(part[:_LONGEST_FACT] for part in parts if part) or "Nsight Systems"

    @property
    def facts(self) -> Mapping[str, str]:
        """What is worth keeping, by the export's own names."""
        found = {name: self._values[name][:_LONGEST_FACT] for name in _TOLD if name in self._values}
        return {name: value for name, value in found.items() if value}

    @property
    def nvtx_was_recorded(self) -> bool:
        return any(
            name.endswith(_NVTX) and value.lower() in ("true", "1")
            for name, value in self._values.items()
        )

    def begin_unix_ns(self, first_ns: int) -> int | None:
        """Return the time of day of an event, None where the file does not know it."""
        first_ns -= _whole(self._values.get("EXPORT_PARAM_TIME_SHIFT"))  # `nsys export --ts-shift`
        if self._values.get("EXPORT_PARAM_TIME_NORMALIZE", "").lower() == "true":
            return first_ns  # `--ts-normalize`: times are of day already
        for (epoch,) in self._export.first_rows(
            "TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",), 1
        ):
            if isinstance(epoch, int) and 0 < epoch < FARTHEST_NS:
                begin = epoch + first_ns
                return begin if abs(begin) < 2 * FARTHEST_NS else None
        return None


def errors(export: Export) -> list[str]:
    """Return what went wrong while it was recorded, such as events that were lost."""
    rows = export.first_rows("DIAGNOSTIC_EVENT", ("severity", "text"), _MOST_FACTS)
    said = (text for level, text in rows if level == _ERROR and isinstance(text, str))
    told = dict.fromkeys(" ".join(text.split())[:_LONGEST_ERROR] for text in said)
    return [f"Nsight Systems reported: {text}" for text in list(told)[:_MOST_ERRORS]]


def _whole(text: Any) -> int:
    """Return a time shift; 0 for what is none, or so far off that nothing honest is."""
    try:
        shift = int(text)
    except (TypeError, ValueError):
        return 0
    return shift if abs(shift) < FARTHEST_NS else 0
