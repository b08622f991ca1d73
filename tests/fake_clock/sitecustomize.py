"""Sets the clock before the script, and before torch, whose import starts the harness.

As an interpreter imports one `sitecustomize`, what the other one does is done here, too.
"""

import runpy
from pathlib import Path

import fake_clock  # noqa: F401 - to be imported is all that it is for

runpy.run_path(str(Path(__file__).parents[1] / "quick_python" / "quick_python.py"))
