"""Runs inside the interpreter that will run the user's script, and says what it has.

Its text is passed with `python -c`: the interpreter may be of another environment, without
gpuadvisor. So it imports only the standard library and torch, uses nothing newer than Python 3.6
(to be called too old, a version must get to its end), and tells its findings in one marked line,
because importing torch or a `sitecustomize` may print. Torch is not imported where all that its
answers rest on has the digest that it is given as its argument: those are known.
"""

import sys

sys.path[:] = [entry for entry in sys.path if entry]  # no `json.py` of the current folder

import hashlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import sysconfig  # noqa: E402
import warnings  # noqa: E402
from importlib import import_module  # noqa: E402
from importlib.util import find_spec  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402
from urllib.parse import unquote  # noqa: E402

MARK = "@gpuadvisor-probe "
INSTALLED = (".dist-info", ".egg-info")
VARIABLES = ("CUDA", "HIP_", "LD_", "NVIDIA_", "PYTHON", "PYTORCH_", "ROCR_", "TORCH")
"""Beginnings of the names of variables that torch, CUDA, the linker or Python read at start."""
DRIVER = ("/proc/driver/nvidia/version", "/proc/sys/kernel/random/boot_id")
"""Files that tell of another driver, and of one that was loaded anew."""


def identity() -> str:
    """Return a digest of all that the answers of `probe` rest on, without importing torch.

    It is that of the interpreter, its search path, packages and variables, of the files of torch by
    their sizes and times, and of the driver and its devices. Empty where there is no torch.
    """
    torch = find_spec("torch")
    if torch is None or not torch.origin:
        return ""
    folder = Path(torch.origin).parent
    files = [Path(sys.executable), *folder.glob("*.py"), *folder.glob("_C*"), *folder.glob("lib/*")]
    variables = sorted(item for item in os.environ.items() if item[0].startswith(VARIABLES))
    driver = [Path(name).read_text("utf-8") for name in DRIVER if Path(name).is_file()]
    stats = [(str(file), file.stat()) for file in sorted(files)]
    known = [
        sys.version,
        sys.path,
        packages(),
        editable_folders(),
        [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats],
        variables,
        driver,
        sorted(map(str, Path("/dev").glob("nvidia*"))),
    ]
    return hashlib.sha256(json.dumps(known).encode("utf-8", "surrogateescape")).hexdigest()


def is_to_be_known(found: "dict[str, Any]") -> bool:
    """Say whether answers will be the same another time: what failed may be mended by then."""
    return not (found.get("torch_problem") or found.get("cuda_problem"))


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


def answer(known: str) -> "dict[str, Any]":
    """Return what `probe` does, and its `identity` where it may be kept.

    That alone where it is the `known` one.
    """
    try:
        now = identity()
    except (OSError, ValueError):  # something changes meanwhile, or is not for us to read
        now = ""
    if now and now == known:
        return {"identity": now}
    found = probe()
    return dict(found, identity=now) if now and is_to_be_known(found) else found


if __name__ == "__main__":
    print("\n" + MARK + json.dumps(answer(*sys.argv[1:] or [""])), flush=True)
    os._exit(0)  # taking torch down again takes 0.4 s of 1.6
