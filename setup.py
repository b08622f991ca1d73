"""Stops a build that would give an empty package; all else stands in pyproject.toml.

The import package is a tree of links (`src/gpuadvisor`, `advisor/rules`, ...). Some ways to copy a
tree lose them: pip unpacks a zip with a text file where a link was, and a file system without links
has none. Setuptools would then build a wheel with nothing in it, and say nothing.
"""

import sys
from pathlib import Path

from setuptools import setup

PACKAGE = Path(__file__).parent / "src" / "gpuadvisor"
PARTS = ("collectors", "rules", "storage", "tui", "tuners")

if not all((PACKAGE / part / "__init__.py").is_file() for part in PARTS):
    sys.exit(
        "gpuadvisor cannot be built from this copy: its symbolic links, such as src/gpuadvisor, are"
        " missing (a zip loses them); use a git clone, a tar archive, or pip install git+URL"
    )

setup()
