"""Starts gpuadvisor's harness in every Python process of a script, before the script itself.

The parent puts the folder that holds a copy of this file first on PYTHONPATH, so the
interpreter imports it while it starts. The script then runs exactly as `python script.py`
runs it: as `__main__`, with its own `sys.path`, tracebacks and child processes.
"""

# ruff: noqa: PTH100, PTH118, PTH120
# It must do its part on any Python, the oldest too.
import os
import sys


def _start():  # type: () -> None
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != folder]
    # A script may start other interpreters, too old for the harness: those are left alone.
    if "GPUADVISOR_SPECIFICATION" in os.environ and sys.version_info >= (3, 8):
        library = os.path.join(folder, "library")
        sys.path.insert(0, library)
        try:
            from gpuadvisor.collectors.script.child.imports import find_rest
            from gpuadvisor.collectors.script.child.start import start

            start()
            find_rest()
        except Exception as error:  # never the script's problem
            sys.stderr.write("gpuadvisor could not start in this process: %r\n" % (error,))  # noqa: UP031
        finally:
            sys.path.remove(library)
    _run_shadowed()


def _run_shadowed():  # type: () -> None
    """Run the `sitecustomize` of the user's own environment, which this one hides."""
    import importlib.util

    mine = sys.modules.pop("sitecustomize")
    try:
        shadowed = importlib.util.find_spec("sitecustomize")
    finally:
        sys.modules["sitecustomize"] = mine  # the import system takes it from there
    if shadowed is not None and shadowed.loader is not None:
        module = importlib.util.module_from_spec(shadowed)
        sys.modules["sitecustomize"] = module
        shadowed.loader.exec_module(module)


_start()
