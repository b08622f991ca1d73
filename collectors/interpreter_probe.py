"""Runs inside the interpreter that will run the user's script, and says what it has.

Its text is passed with `python -c`: the interpreter may be of another environment, without
gpuadvisor. So it imports only the standard library and torch, uses nothing newer than Python 3.6
(to be called too old, a version must get to its end), and tells its findings in one marked line,
because importing torch or a `sitecustomize` may print.
"""

import sys

sys.path[:] = [entry for entry in sys.path if entry]  # no `json.py` of the current folder

import json  # noqa: E402
import os  # noqa: E402
import sysconfig  # noqa: E402
import warnings  # noqa: E402
from importlib import import_module  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402
from urllib.parse import unquote  # noqa: E402

MARK = "@gpuadvisor-probe "
INSTALLED = (".dist-info", ".egg-info")


def probe() -> "dict[str, Any]":
    """Return the fields of a `TargetPython`, as JSON has them."""
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")  # noqa: PTH118
    found: dict[str, Any] = {
        "version": "{}.{}.{}".format(*sys.version_info),
        "has_header": os.path.exists(header),  # noqa: PTH110 - old versions
        "packages": packages(),
        "editable": editable_folders(),
    }
    try:
        torch = import_module("torch")
    except ModuleNotFoundError as error:
        absent = error.name == "torch"  # else something that torch needs
        found["torch_problem"] = "torch is not installed" if absent else f"torch fails: {error}"
    except BaseException as error:  # a broken library raises OSError; some builds call sys.exit
        found["torch_problem"] = f"torch cannot be imported: {error}"
    else:
        found["torch"] = str(torch.__version__)
        found["cuda"] = torch.version.cuda
        found["cudnn"] = torch.backends.cudnn.version()
        found["triton"] = triton_version()
        found.update(cuda_state(torch))
    return found


def installed() -> "list[str]":
    """Return the folders with what installers wrote down, one for each package."""
    found = []
    for folder in map(Path, sys.path):
        try:
            found += [str(each) for each in folder.iterdir() if each.suffix in INSTALLED]
        except OSError:  # not there, a zip file, or not for us to read
            continue
    return found


def packages() -> "list[str]":
    """Return what is installed, such as `numpy-2.1.0`, without opening a file."""
    return sorted({Path(folder).stem for folder in installed()})


def editable_folders() -> "list[str]":
    """Return the folders of packages that are installed from their source, which may change."""
    found = []
    for folder in installed():
        try:
            # packaging.python.org/specifications/direct-url
            origin = json.loads((Path(folder) / "direct_url.json").read_text("utf-8"))
            if origin.get("dir_info", {}).get("editable"):
                found.append(unquote(origin["url"].partition("://")[2]))
        except (OSError, ValueError, KeyError, AttributeError):
            continue
    return sorted(found)


def triton_version() -> "str | None":
    """Return the version of Triton, which compiles Inductor's kernels for GPUs."""
    try:
        triton = import_module("triton")
    except Exception:  # whatever is wrong with it, Inductor cannot use it either
        return None
    return str(triton.__version__)


def cuda_state(torch: Any) -> "dict[str, Any]":
    """Return whether torch can use a GPU, why not, and the GPUs that it sees."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            if torch.cuda.is_available():
                count = torch.cuda.device_count()
                return {
                    "cuda_available": True,
                    "gpus": [describe(torch, index) for index in range(count)],
                    "architectures": torch.cuda.get_arch_list(),
                }
        except Exception as error:
            return {"cuda_problem": str(error)}
    return {"cuda_problem": str(said[0].message) if said else None}


def describe(torch: Any, index: int) -> "dict[str, Any]":
    """Return one GPU as torch sees it."""
    properties = torch.cuda.get_device_properties(index)
    uuid = getattr(properties, "uuid", None)  # not in every version of torch
    return {
        "name": properties.name,
        "compute_capability": [properties.major, properties.minor],
        "memory_bytes": properties.total_memory,
        "uuid": None if uuid is None else str(uuid),
    }


if __name__ == "__main__":
    print("\n" + MARK + json.dumps(probe()), flush=True)
    os._exit(0)  # taking torch down again takes 0.4 s of 1.6
