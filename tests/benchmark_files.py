"""Files of `benchmarks/` as modules: they are programs, and no package holds them."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def loaded(name: str) -> ModuleType:
    """Run the file of this name, without the ending, and return it as a module.

    Those beside it that it imports are found as when it is started.
    """
    if str(BENCHMARKS) not in sys.path:
        sys.path.append(str(BENCHMARKS))
    spec = spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module
