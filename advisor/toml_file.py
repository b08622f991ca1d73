"""TOML that somebody may have edited: plans and configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuadvisor.errors import UsageError

MAX_BYTES = 1 << 20
"""Most that such a file may have; it has some kilobytes, and more is another file."""


def read_toml(path: Path, what: str, otherwise: str = "") -> dict[str, Any]:
    """Return what a file holds that is to be `what`, as in "a plan".

    UsageError where it cannot be read, is larger than 1 MiB, or is no TOML; `otherwise` says how
    one gets such a file who does not correct this one.
    """
    import tomllib

    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: the path holds a null byte
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {what} {path}: {reason}; check the path.") from None
    if len(content) > MAX_BYTES:
        raise UsageError(f"{path} is not {what}: it is larger than 1 MiB; check the path.")
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        # ValueError: not UTF-8, not TOML, or a number beyond Python's limit of digits.
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"{path} is not {what}: it is not valid TOML ({reason}); correct it{otherwise}."
        ) from None
