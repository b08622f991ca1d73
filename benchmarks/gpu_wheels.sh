#!/usr/bin/env bash
# What gpuadvisor and its tests on a GPU need beside an image with torch, for a machine without a
# network: wheels for Python 3.12 on x86-64 with glibc 2.28 or newer, some 21 MB.
#
#   gpu_wheels.sh download FOLDER [PYTHON]    where there is a network
#   gpu_wheels.sh install FOLDER [PYTHON]     on that machine: the wheels, and this clone as gpuadvisor
#
# Nothing else is installed, upgraded or removed: torch, Triton, CuPy and NVIDIA's libraries stay as
# they are. What is then still missing, or too old, is said, and the status is 1.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

# Versions are those of constraints/dev.txt.
carried="msgspec nvtx optuna alembic colorlog mako markupsafe sqlalchemy textual linkify-it-py
mdit-py-plugins platformdirs tomli-w zstandard pytest pytest-asyncio syrupy setuptools"
# What examples/kernels are timed beside; 1.4.0 is the newest that torch 2.11 can import.
compared="helion==1.4.0 filecheck==1.0.6"
# What scripts of benchmarks/public_scripts.toml and triton_scripts.toml need beside what is there.
scripts="jsonargparse docstring-parser typeshed-client importlib-resources soundfile cffi pycparser
datasets dill multiprocess einops rotary-embedding-torch tqdm"
# Of an image with torch, Triton, JAX and what people use beside them.
there="torch numpy pandas scipy nvidia-ml-py prometheus-client psutil rich hypothesis pytest-cov
pytest-timeout pytest-xdist cuda-core cuda-bindings nvidia-cuda-nvrtc triton scikit-learn"

tell_missing() {
    "$1" - "$root" "${compared%% *}" $there <<'END'
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

try:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name
except ModuleNotFoundError:
    from pip._vendor.packaging.requirements import Requirement
    from pip._vendor.packaging.utils import canonicalize_name

pyproject = tomllib.loads((Path(sys.argv[1]) / "pyproject.toml").read_text("utf-8"))
groups = pyproject["dependency-groups"]
asked = [*pyproject["project"]["dependencies"], *groups["test"], *groups["kernels"]]
left_out = {"jsonschema", "kernel-tuner"}  # no test on a GPU needs them
wanted = [each for each in map(Requirement, ["torch", sys.argv[2], *asked]) if each.name not in left_out]
missing, seen = [], set()
while wanted:
    each = wanted.pop()
    name = canonicalize_name(each.name)
    if (name, *each.extras) in seen:
        continue
    seen.add((name, *each.extras))
    try:
        found = version(name)
    except PackageNotFoundError:
        missing.append(f"{each.name} is missing")
        continue
    if not each.specifier.contains(found, prereleases=True):
        missing.append(f"{each.name} is {found}, and {each} is asked for")
    if name in sys.argv[3:]:
        continue  # what those need is their own matter
    for need in map(Requirement, requires(name) or ()):
        extras = [{"extra": extra} for extra in ("", *each.extras)]
        if need.marker is None or any(map(need.marker.evaluate, extras)):
            wanted.append(need)
sys.exit("\n".join(sorted(set(missing))) or None)
END
}

case "${1:-} $#" in
"download "[23])
    "${3:-python3}" -m pip download --quiet --no-deps --only-binary=:all: --dest "$2" \
        --constraint "$root/constraints/dev.txt" --implementation cp --python-version 3.12 \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 $carried $compared $scripts
    du -ch "$2"/*.whl | tail -n 1
    ;;
"install "[23])
    python=${3:-python3} wheels=()
    compgen -G "$2/*.whl" >/dev/null || { echo "$2 has no wheels: download them first" >&2; exit 2; }
    quietly=(install --quiet --no-index --no-deps --no-compile --root-user-action ignore)
    for wheel in "$2"/*.whl; do  # setuptools is for the build alone: torch asks for older ones
        case $wheel in */setuptools-*) ;; *) wheels+=("$wheel") ;; esac
    done
    "$python" -m pip "${quietly[@]}" "${wheels[@]}"
    "$python" -m pip "${quietly[@]}" --find-links "$2" --editable "$root"
    tell_missing "$python"
    ;;
*)
    sed -n '2,/^set/{/^# \{0,1\}/s///p}' "$0" >&2
    exit 2
    ;;
esac
