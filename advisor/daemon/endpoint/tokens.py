"""Bearer tokens of endpoints: out of a file or an environment variable, never out of arguments."""

from __future__ import annotations

import os
from pathlib import Path

from gpuadvisor.errors import UsageError

MAX_TOKEN_BYTES = 4096


def read_token(file: str | None, variable: str | None) -> bytes | None:
    """Return the token that stands in a file, else in a variable; None where neither is named.

    UsageError where the file cannot be read, or nothing stands there.
    """
    if file:
        path = Path(file)
        try:
            with path.open("rb") as opened:
                token = opened.read(MAX_TOKEN_BYTES).strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"The token file {path} cannot be read ({reason}).") from None
        where = f"The token file {path}"
    elif variable:
        token = os.environ.get(variable, "").strip().encode()
        where = f"The environment variable {variable}"
    else:
        return None
    if not token:
        raise UsageError(f"{where} is empty: write a token there, as from `openssl rand -hex 32`.")
    return token
