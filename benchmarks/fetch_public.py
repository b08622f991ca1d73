"""Fetch the public scripts of `public_scripts.toml` and make the data that they read.

    python benchmarks/fetch_public.py FOLDER [--code | --data] [--only NAME,...] [--small]
    python benchmarks/fetch_public.py FOLDER --show NAME
    python benchmarks/fetch_public.py FOLDER --traces ANSWERS.jsonl [--only NAME,...]

The code is fetched from GitHub at the commit that is named; the data are synthetic and the same
each time, made where they are used: they are too large to be carried. `--show` prints how a script
is started, as lines of a shell. `--traces` fetches the files that a list in `public_traces` names,
each under its name there; a trace of several files becomes a folder.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import gzip
import json
import os
import random
import shlex
import shutil
import string
import struct
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).with_name("public_scripts.toml")
SOURCE = "https://github.com/{repository}"
WORDS = 33_000
"""Different words of the synthetic texts: those of wikitext-2."""
IMAGENETTE = (
    *("n01440764", "n02102040", "n02979186", "n03000684", "n03028079"),
    *("n03394916", "n03417042", "n03425413", "n03445777", "n03888257"),
)
"""Classes of the Imagenette data set, as torchvision knows them."""
DISTINCT = 512
"""Different pictures or sounds; further names are links to them, which read and decode alike."""


@dataclass(frozen=True)
class Script:
    """One public script, where everything was fetched to `root`."""

    root: Path
    repository: str
    about: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        """Working directory."""
        return self.root / self.repository.replace("/", "+") / self.about["folder"]

    @property
    def environment(self) -> dict[str, str]:
        """Variables to set; what they say of PYTHONPATH comes before what is there."""
        known = self.about.get("environment", {})
        return {name: value.format(root=self.root) for name, value in known.items()}

    @property
    def started(self) -> list[str]:
        """What `python` starts: a file, or `-m` and a module."""
        return ["-m", self.about["module"]] if "module" in self.about else [self.about["script"]]

    def words(self, on_cpu: bool) -> list[str]:
        """Return the script and its arguments, which are small ones on a CPU."""
        return [*self.started, *self.about["cpu_args" if on_cpu else "args"]]

    def start(self, on_cpu: bool) -> Iterator[str]:
        """Yield the lines of a shell that set up its start; `$@` is what runs it."""
        yield f"cd {shlex.quote(str(self.folder))}"
        for name, value in self.environment.items():
            before = '"${PYTHONPATH:+:$PYTHONPATH}"' if name == "PYTHONPATH" else ""
            yield f"export {name}={shlex.quote(value)}{before}"
        yield f"set -- {shlex.join(self.words(on_cpu))}"

    def missing(self) -> list[str]:
        """Return the packages that it needs and that are not installed here."""

        def is_missing(package: str) -> bool:
            try:
                metadata.version(package)
            except metadata.PackageNotFoundError:
                return True
            return False

        return [each for each in self.about.get("packages", ()) if is_missing(each)]


def scripts(root: Path, listed: Path | None = None) -> dict[str, Script]:
    """Return all scripts of a list by name."""
    known = tomllib.loads((listed or SCRIPTS).read_text("utf-8"))["script"]
    return {each["name"]: Script(root, each["repository"], each) for each in known}


def fetch(root: Path, repository: str, source: str, listed: Path | None = None) -> None:
    """Check out what a list wants of a repository at its commit.

    A folder that `source` names may lack what is not wanted, and need not have been told to serve
    a commit: it is read as it is.
    """
    about = tomllib.loads((listed or SCRIPTS).read_text("utf-8"))["repository"][repository]
    owner, name = repository.split("/")
    folder = root / f"{owner}+{name}"
    if folder.is_dir():
        return
    draft = folder.with_suffix(".draft")  # a call that is cut off leaves nothing that looks whole
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    url = source.format(repository=repository, owner=owner, name=name)
    git = partial(subprocess.run, check=True, cwd=draft)
    if Path(url).is_dir():
        paths = [f":(glob){path}" for path in about.get("paths", ["**"])]
        places = [f"--git-dir={Path(url).absolute()}", "--work-tree=."]
        environment = {**os.environ, "GIT_INDEX_FILE": str(draft / ".index")}
        git(["git", *places, "checkout", "-q", about["commit"], "--", *paths], env=environment)
        (draft / ".index").unlink()
    else:
        git(["git", "init", "-q"])
        git(["git", "remote", "add", "origin", url])
        git(["git", "fetch", "-q", "--depth", "1", "--filter=blob:none", "origin", about["commit"]])
        if "paths" in about:
            paths = [f"/{path}" for path in about["paths"]]
            git(["git", "sparse-checkout", "set", "--no-cone", *paths])
        git(["git", "checkout", "-q", "FETCH_HEAD"])
    draft.rename(folder)


def trace(root: Path, about: Mapping[str, Any], source: str) -> None:
    """Fetch the files of one trace as the blobs that its list names."""
    files = about["source"] if isinstance(about["source"], list) else [about["source"]]
    for number, file in enumerate(files):
        name = f"{about['name']}/rank{number}" if len(files) > 1 else about["name"]
        packed = ".gz" if file["path"].endswith(".gz") else ""
        target = root / f"{name}.{about['format']}{packed}"
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        repository = file["repo"].removeprefix("github.com/")
        owner, short = repository.split("/")
        url = source.format(repository=repository, owner=owner, name=short)
        with tempfile.TemporaryDirectory() as scratch:
            git = ["git", "-C", scratch]
            subprocess.run([*git, "init", "-q"], check=True)
            subprocess.run([*git, "fetch", "-q", "--depth", "1", url, file["blob"]], check=True)
            shown = [*git, "cat-file", "blob", file["blob"]]
            target.write_bytes(subprocess.run(shown, check=True, stdout=subprocess.PIPE).stdout)


# The data: each function fills a place; `small` asks for as little as shows that steps are seen. --


def mnist(place: Path, small: bool) -> None:
    """The files of MNIST; what is in them does not matter for the speed."""
    import numpy

    generator = numpy.random.default_rng(0)
    raw = place / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 60_000), ("t10k", 10_000)):
        for kind, shape in (("images-idx3", (count, 28, 28)), ("labels-idx1", (count,))):
            most = 256 if kind.startswith("images") else 10
            values = generator.integers(0, most, shape).astype("uint8")
            head = struct.pack(">HBB", 0, 8, values.ndim) + struct.pack(f">{len(shape)}I", *shape)
            (raw / f"{name}-{kind}-ubyte").write_bytes(head + values.tobytes())


second_mnist = mnist


def words(place: Path, small: bool) -> None:
    """Three texts of random words."""
    place.mkdir(parents=True, exist_ok=True)
    generator = random.Random(0)
    for name, count in (("train", 2_000_000), ("valid", 200_000), ("test", 200_000)):
        drawn = _words(generator, count // 50 if small else count)
        lines = [" ".join(drawn[at : at + 20]) for at in range(0, len(drawn), 20)]
        (place / f"{name}.txt").write_text("\n".join(lines) + "\n", "utf-8")


def text(place: Path, small: bool) -> None:
    """One text of a megabyte, in which each printable character occurs."""
    drawn = " ".join(_words(random.Random(0), 170_000))
    (place / "input.txt").write_text(f"{string.printable}\n{drawn}\n", "utf-8")


def letters(place: Path, small: bool) -> None:
    """One text of a megabyte in a dozen different characters."""
    drawn = _words(random.Random(0), 170_000)
    (place / "input.txt").write_text(" ".join(drawn), "utf-8")


def tokens(place: Path, small: bool) -> None:
    """Two files of 16-bit tokens."""
    import numpy

    place.mkdir(parents=True, exist_ok=True)
    generator = numpy.random.default_rng(0)
    for name, count in (("train", 10_000_000), ("val", 1_000_000)):
        drawn = numpy.minimum(generator.zipf(1.2, count), 50_256)
        drawn.astype("uint16").tofile(place / f"{name}.bin")


def enwik8(place: Path, small: bool) -> None:
    """One packed text of 100 MB, a megabyte of random words over and over."""
    place.mkdir(parents=True, exist_ok=True)
    part = " ".join(_words(random.Random(0), 170_000)).encode()[:1_000_000]
    with gzip.open(place / "enwik8.gz", "wb", compresslevel=1) as file:
        for _ in range(100):
            file.write(part)


def pictures(place: Path, small: bool) -> None:
    """A folder a class of JPEG pictures, 16,384 in all."""
    made = picture_files(place.with_name(f"{place.name}-made"), small)
    for number in range(256 if small else 16_384):
        folder = place / f"class_{number % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        _link(made[number % len(made)], folder / f"{number:05}.jpg")


def imagenette(place: Path, small: bool) -> None:
    """JPEG pictures as the Imagenette data set has them, in two splits, the first of which is
    longer than that."""
    made = picture_files(place.with_name(f"{place.name}-made"), small)
    for split, count in (("train", 65_536), ("val", 512)):
        for number in range(min(count, 256) if small else count):
            folder = place / split / IMAGENETTE[number % len(IMAGENETTE)]
            folder.mkdir(parents=True, exist_ok=True)
            _link(made[number % len(made)], folder / f"{number:05}.JPEG")


def pets(place: Path, small: bool) -> None:
    """JPEG pictures named after their class, as many as in the Oxford-IIIT pet data set."""
    made = picture_files(place.with_name(f"{place.name}-made"), small)
    place.mkdir(parents=True, exist_ok=True)
    for number in range(400 if small else 7_390):
        _link(made[number % len(made)], place / f"breed{number % 37}_{number}.jpg")


def boxes(place: Path, small: bool) -> None:
    """Lists of pictures with boxes, as long as those of PASCAL VOC 2007 and 2012."""
    made = picture_files(place / "pictures", small)
    generator = random.Random(0)
    for split, count in (("TRAIN", 16_551), ("TEST", 100)):
        found = [_boxes(generator) for _ in range(count // 20 if small else count)]
        paths = [str(made[number % len(made)].absolute()) for number in range(len(found))]
        (place / f"{split}_images.json").write_text(json.dumps(paths), "utf-8")
        (place / f"{split}_objects.json").write_text(json.dumps(found), "utf-8")


def vgg16(place: Path, small: bool) -> None:
    """Random weights where torchvision looks for those of VGG-16."""
    import torch
    import torchvision

    folder = place / "hub" / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.save(torchvision.models.vgg16().state_dict(), folder / "vgg16-397923af.pth")


def timm_weights(place: Path, small: bool) -> None:
    """Random weights where timm looks for those of the models that the scripts name."""
    import timm
    import torch
    from safetensors.torch import save_file

    commit = "0" * 40
    for model in ("resnet50d", "resnet18" if small else "resnet50"):
        torch.manual_seed(0)
        weights = dict(timm.create_model(model).state_dict())
        name = timm.get_pretrained_cfg(model).hf_hub_id.replace("/", "--")
        cached = place / "hub" / f"models--{name}"
        (cached / "refs").mkdir(parents=True, exist_ok=True)
        (cached / "refs" / "main").write_text(commit, "utf-8")
        (cached / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
        save_file(weights, cached / "snapshots" / commit / "model.safetensors")


def outputs(place: Path, small: bool) -> None:
    """An empty folder for results."""
    place.mkdir(parents=True, exist_ok=True)


def voices(place: Path, small: bool) -> None:
    """Sounds of 8 s, and lists of 2,000 speakers with ten of them each."""
    import wave

    import numpy

    generator = numpy.random.default_rng(0)
    (place / "wav").mkdir(parents=True, exist_ok=True)
    names = [f"{number}.wav" for number in range(DISTINCT // 8 if small else DISTINCT)]
    for name in names:
        with wave.open(str(place / "wav" / name), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16_000)
            file.writeframes(generator.normal(0, 3000, 8 * 16_000).astype("<i2").tobytes())
    lines = [
        f"id{speaker:05} {names[(10 * speaker + number) % len(names)]}"
        for speaker in range(2_000)
        for number in range(10)
    ]
    (place / "train.txt").write_text("\n".join(lines) + "\n", "utf-8")
    tests = [f"{number % 2} {names[number]} {names[number + 1]}" for number in range(20)]
    (place / "test.txt").write_text("\n".join(tests) + "\n", "utf-8")


def graphs(place: Path, small: bool) -> None:
    """Random graphs of 10 to 50 nodes in the files of a TU data set."""
    generator = random.Random(0)
    place.mkdir(parents=True, exist_ok=True)
    edges, owners, labels, kinds = (list[str]() for _ in range(4))
    for graph in range(1, (1_000 if small else 20_000) + 1):
        first, count = len(owners) + 1, generator.randint(10, 50)
        owners += [str(graph)] * count
        kinds += [str(generator.randrange(7)) for _ in range(count)]
        labels.append(str(generator.randrange(2)))
        for node in range(first + 1, first + count):
            other = generator.randrange(first, node)
            edges += [f"{node}, {other}", f"{other}, {node}"]
    files = {"A": edges, "graph_indicator": owners, "graph_labels": labels, "node_labels": kinds}
    for name, lines in files.items():
        (place / f"MUTAG_{name}.txt").write_text("\n".join(lines) + "\n", "utf-8")


def sentences(place: Path, small: bool) -> None:
    """Pairs of sentences with scores, as many as in STSb, and two BERTs of random weights."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    generator = random.Random(0)
    folder = place / "sentence-transformers" / "stsb"
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 5_749), ("validation", 1_500), ("test", 1_379)):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["sentence1", "sentence2", "score"])
            for _ in range(count // 5 if small else count):
                pair = [" ".join(_words(generator, generator.randint(6, 30))) for _ in range(2)]
                writer.writerow([*pair, round(generator.random(), 3)])
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_vocabulary()[:30_000]]
    (place / "vocab.txt").write_text("\n".join(vocabulary), "utf-8")
    sizes = {
        "bert": BertConfig(),
        "bert-tiny": BertConfig(
            hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
        ),
    }
    for name, config in sizes.items():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(place / name)
        BertTokenizerFast(str(place / "vocab.txt")).save_pretrained(place / name)


def _vocabulary() -> list[str]:
    return [f"w{number}" for number in range(WORDS)]


def _words(generator: random.Random, count: int) -> list[str]:
    return generator.choices(_vocabulary(), k=count)


def _boxes(generator: random.Random) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"boxes": [], "labels": [], "difficulties": []}
    for _ in range(generator.randint(1, 5)):
        left, top = generator.randrange(400), generator.randrange(275)
        right, bottom = generator.randrange(left + 50, 500), generator.randrange(top + 50, 375)
        found["boxes"].append([left, top, right, bottom])
        found["labels"].append(generator.randint(1, 20))
        found["difficulties"].append(0)
    return found


def picture_files(folder: Path, small: bool = False) -> list[Path]:
    """Make pictures of 500 by 375 pixels, each of about 50 KB."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number}.jpg" for number in range(DISTINCT // 16 if small else DISTINCT)]
    with ProcessPoolExecutor() as pool:
        list(pool.map(_picture, paths, chunksize=16))
    return paths


def _link(made: Path, name: Path) -> None:
    if not name.exists():  # an earlier call was cut off
        os.link(made, name)


def _picture(path: Path) -> None:
    import numpy
    from PIL import Image

    generator = numpy.random.default_rng(int(path.stem))
    coarse = Image.fromarray(generator.integers(0, 256, (47, 63, 3)).astype("uint8"))
    fine = generator.normal(0, 12, (375, 500, 3))
    smooth = numpy.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC), dtype="float32")
    Image.fromarray(numpy.clip(smooth + fine, 0, 255).astype("uint8")).save(path, quality=85)


MAKERS: Mapping[str, Callable[[Path, bool], None]] = {
    maker: globals()[maker]
    for maker in (
        *("mnist", "second_mnist", "words", "text", "letters", "tokens", "enwik8", "pictures"),
        *("imagenette", "pets", "boxes"),
        *("vgg16", "timm_weights", "outputs", "voices", "graphs", "sentences"),
    )
}


def make(script: Script, small: bool) -> None:
    """Make the data of a script that are not there yet."""
    for name, place in script.about.get("data", {}).items():
        done = script.root / place / f".made-{name}"
        lock = script.root / f".making-{name}"
        with lock.open("w") as file:  # two scripts may read the same, and be made ready at once
            fcntl.flock(file, fcntl.LOCK_EX)
            if not done.exists():
                MAKERS[name](script.root / place, small)
                done.touch()


def main() -> int:
    """Fetch, make, or show; 1 where something could not be had."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where all goes")
    parser.add_argument("--only", help="names, separated by commas; all by default")
    parser.add_argument("--code", action="store_true", help="fetch the code only")
    parser.add_argument("--data", action="store_true", help="make the data only")
    parser.add_argument("--small", action="store_true", help="little data, to try on a CPU")
    parser.add_argument("--show", metavar="NAME", help="print how to start a script")
    parser.add_argument("--cpu", action="store_true", help="with --show: as on a CPU")
    parser.add_argument("--traces", type=Path, help="fetch what this list of answers names")
    parser.add_argument("--from", dest="source", default=SOURCE, help="where repositories are")
    options = parser.parse_args()
    root = options.folder.absolute()
    known: Mapping[str, Any] = scripts(root)
    if options.traces:
        lines = map(json.loads, options.traces.read_text("utf-8").splitlines())
        known = {each["name"]: each for each in lines}
    names = options.only.split(",") if options.only else list(known)
    if unknown := {*names, *([options.show] if options.show else [])} - known.keys():
        parser.error(f"nothing is named {', '.join(sorted(unknown))}")
    if options.show:
        print("\n".join(known[options.show].start(options.cpu)))
        return 0
    failed = []
    for name in names:
        try:
            if options.traces:
                trace(root, known[name], options.source)
                continue
            if not options.data:
                fetch(root, known[name].repository, options.source)
            if not options.code:
                make(known[name], options.small)
        except (OSError, ImportError, subprocess.CalledProcessError) as error:
            failed.append(name)
            print(f"{name}: {error}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
