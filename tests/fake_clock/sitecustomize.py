"""Sets the clock before the script, and before torch, whose import starts the harness."""

import fake_clock  # noqa: F401 - to be imported is all that it is for
