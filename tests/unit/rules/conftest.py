"""The programs that draw, write and record programs with one defect: `benchmarks/defects`."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

DEFECTS = Path(__file__).parents[3] / "benchmarks" / "defects"


@pytest.fixture(scope="module")
def made():
    """What imports a module of that folder by its name, as its scripts do."""
    sys.path.insert(0, str(DEFECTS))
    yield import_module
    sys.path.remove(str(DEFECTS))
    for name in {path.stem for path in DEFECTS.glob("*.py")} & sys.modules.keys():
        del sys.modules[name]
