"""Tune the Triton kernels of a public script that trains with its own: attorch's ViT on pictures.

    python benchmarks/triton_in_scripts.py FOLDER [--fetch] [--model NAME] [--budget 10m]

The repository is fetched to FOLDER at the commit that `public_scripts.toml` names; with `--fetch`
that is all, for a machine that reaches the network and has no GPU. Pictures are made there in the
form of the Imagenette data set. Then `gpuadvisor tune` runs the script, unmodified, with no knob
but `triton_kernels`, and prints what came of it. Needs torchvision and pillow beside torch and
Triton.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fetch_public import SOURCE, fetch, picture_files

REPOSITORY = "BobMcDear/attorch"
MODULE = "examples.imagenette.main"
CLASSES = (
    *("n01440764", "n02102040", "n02979186", "n03000684", "n03028079"),
    *("n03394916", "n03417042", "n03425413", "n03445777", "n03888257"),
)
"""Folders of the Imagenette data set, as torchvision knows them."""
PICTURES = {"train": 4096, "val": 512}
"""Pictures of each split, links to 512 different ones; the data set has 9,469 and 3,925."""


def main() -> int:
    """Fetch, tune, and print; the exit status is that of `gpuadvisor tune`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where all goes")
    parser.add_argument("--fetch", action="store_true", help="fetch the code only")
    parser.add_argument("--model", default="vit_base_patch16")
    parser.add_argument("--batch", default="128", help="samples of a batch")
    parser.add_argument("--workers", default="14", help="workers of its loaders")
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--from", dest="source", default=SOURCE, help="where repositories are")
    options = parser.parse_args()
    root = options.folder.absolute()
    fetch(root, REPOSITORY, options.source)
    folder = root / REPOSITORY.replace("/", "+")
    if options.fetch:
        return 0
    make_pictures(folder / "imagenette2", root / "pictures-made")
    words = ["--only", "triton_kernels", "--budget", options.budget, "--json"]
    script = ["--model", options.model, "--batch_size", options.batch]
    script += ["--num_workers", options.workers]
    run = subprocess.run(
        [sys.executable, "-m", "gpuadvisor", "tune", *words, "-m", MODULE, "--", *script],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if run.returncode == 0:
        (root / "result.json").write_text(run.stdout)
        print(table(json.loads(run.stdout)))
    return run.returncode


def make_pictures(place: Path, made: Path) -> None:
    """Make both splits, where they are not there yet."""
    if place.is_dir():
        return
    pictures = picture_files(made)
    for split, count in PICTURES.items():
        for number in range(count):
            folder = place / split / CLASSES[number % len(CLASSES)]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:05}.JPEG").hardlink_to(pictures[number % len(pictures)])


def table(result: Mapping[str, Any]) -> str:
    """Return what a study found: the gain, and what it says of each kernel."""
    speedup = result["speedup"]
    gain = "no proof"
    if speedup:
        low, high = speedup["ci99_low"], speedup["ci99_high"]
        gain = f"{speedup['ratio']:.3f}x (99 % interval {low:.3f} to {high:.3f})"
    lines = [
        f"{result['device']['name']}: {result['verdict']}, {gain}",
        f"step {result['baseline']['step_ms']['p50']:.2f} ms as it is",
        *(f"- {note}" for note in result["notes"]),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
