"""Kernels convert tensors between NCHW and NHWC around convolutions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.device import sm_count
from gpuadvisor.rules.estimates import PLAYED, Gain, filled, named, saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernel_families import NATIVE_NCHW, NORMALIZES_NCHW
from gpuadvisor.rules.facts.kernels import KernelUse
from gpuadvisor.rules.facts.reordered import reordered
from gpuadvisor.rules.facts.roofline import listed
from gpuadvisor.rules.requirements import DEVICE, LAUNCHES
from gpuadvisor.rules.rule import NOTICEABLE, Rule, RuleResult, percent
from gpuadvisor.rules.tensor_cores import odd_channels

LOW, HIGH = 0.5, 1.0
"""Share of the conversions' time that is saved; weights and what is no convolution keep some, and
the convolutions' own kernels may be others then: 0.6 of a plain network's on an H200 (15.3 to
13.1 ms, of which conversions were 3.7), and of 21 programs there all gained what is said so."""
NORMALIZATION_HIGH = 0.6
"""Largest share that is saved of the time of batch normalisation in NCHW, which has one block a
channel. ResNet-50 on an H100 went from 148 to 113 ms, which is twice the time of its
conversions. Where there are fewer channels than that leaves multiprocessors a block, it is what
these are of all: kernels of NHWC divide the places of the images among blocks as well. With 16
channels on an H200 a backward pass takes 2.5 ms for 0.3 GB, which its memory moves in 0.1 ms."""
NATIVE_LOW = 0.2
"""Least share of PyTorch's own batch normalisation in NCHW that is saved: channels_last took 42 %
off a run under AMP of which it was 53 % and conversions 10 %, so 0.6 there. [own]"""
ONE_ORDER = 1 - 28 / 134
"""Share of its time that an elementwise kernel saves at most where its operands come in one order:
an addition of images in NCHW and channels_last took 134 us on an H200, of equal ones 28."""

_TURNS = re.compile(r"nchw_?(2|to)_?nhwc|nhwc_?(2|to)_?nchw", re.IGNORECASE)
"""In names of kernels that bring images into the other order, not only pad their channels."""

SERIES_DIMENSIONS, IMAGE_DIMENSIONS, VOLUME_DIMENSIONS = 3, 4, 5
"""Number of dimensions of a tensor that `Conv1d` takes (samples, channels, places), and of those
that `Conv2d` and `Conv3d` take."""
_ADVICE = (
    "Keep images and weights in channels_last: `model.to(memory_format=torch.channels_last)`, and"
    " the input as well{}."
)
_OR_VOLUMES = "; volumes (`Conv3d`) in `torch.channels_last_3d`"
_VOLUME_ADVICE = (
    "Keep volumes and weights in channels_last_3d:"
    " `model.to(memory_format=torch.channels_last_3d)`, and the input as well."
)
_SERIES_ADVICE = (
    "PyTorch keeps no series (`Conv1d`) in channels_last: make them images of height 1"
    " (`x.unsqueeze(2)`, `Conv2d` with a kernel of `(1, k)`) and keep these in"
    " `torch.channels_last`; where the kernel is 1, a `Linear` over the channels does the same."
)

RULE = Rule(Category.LAYOUT, needs=(LAUNCHES, DEVICE), knobs=("channels_last",))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find cuDNN's own conversions."""
    facts = evidence.known_facts
    uses = facts.kernel_uses
    # What pads channels of the user's choice is `misaligned_gemm`'s: no layout changes that.
    found = tuple(e for e in uses.of("layout") if not odd_channels(e.operator, e.shapes))
    # Padded channels are no other order: only conversions tell of images that come in two.
    beside = reordered(uses, [each for each in found if _TURNS.search(each.name)])
    share, more = uses.share(found), uses.share(beside.copies + beside.others)
    if not found or share + more < NOTICEABLE or not uses.of("convolution"):
        return
    gains = [Gain(each, LOW, HIGH) for each in found]
    gains += [
        Gain(each, low, _most_of_normalization(evidence, each))
        for pattern, low in ((NORMALIZES_NCHW, 0.0), (NATIVE_NCHW, NATIVE_LOW))
        for each in uses.of("normalization")
        if pattern.search(each.name)
    ]
    gains += [Gain(each, LOW, HIGH) for each in beside.copies]
    gains += [Gain(each, LOW * ONE_ORDER, ONE_ORDER) for each in beside.others]
    of_series = 2 * uses.share(tuple(each for each in found if _is_of_series(each))) > share
    words = f", and {more:.0%} into kernels that meet images in two orders" if more else ""
    yield RuleResult(
        f"{share:.0%} of the GPU's kernel time goes into converting tensors for convolutions"
        f" ({named(found)}){words}",
        (
            percent("layout_conversions", share, NOTICEABLE),
            *((percent("images_in_two_orders", more),) if more else ()),
        ),
        _SERIES_ADVICE if of_series else _of_images(found),
        saving(facts, gains),
        f"Half to all of the conversions{' and of copies of images' * bool(more)}, and up to 60 %"
        " of batch normalisation in NCHW (at least 20 % of PyTorch's own), or as much of it as"
        f" multiprocessors have no channel; {PLAYED}.",
        knobs=() if of_series else None,
    )


def _most_of_normalization(evidence: Evidence, use: KernelUse) -> float:
    """Return the largest share that is saved of the time of a normalisation in NCHW."""
    share = filled(evidence.known_facts, use, sm_count(evidence))
    return NORMALIZATION_HIGH if share is None else max(NORMALIZATION_HIGH, 1 - share)


def _of_images(found: Sequence[KernelUse]) -> str:
    """Return what to do, by the dimensions of what is converted: both where they are unknown."""
    volumes = [_has_dimensions(each, VOLUME_DIMENSIONS) for each in found]
    if volumes and all(volumes):
        return _VOLUME_ADVICE
    known = all(listed(each.shapes) for each in found)
    return _ADVICE.format("" if known and not any(volumes) else _OR_VOLUMES)


def _has_dimensions(use: KernelUse, dimensions: int) -> bool:
    """Say whether an operator's first tensor has so many dimensions."""
    shapes = [each for each in listed(use.shapes) if isinstance(each, list)]
    return bool(shapes) and len(shapes[0]) == dimensions


def _is_of_series(use: KernelUse) -> bool:
    """Say whether a convolution is over one dimension: cuDNN gets it as an image of height 1, and
    PyTorch has no channels_last for tensors of three dimensions."""
    shapes = [each for each in listed(use.shapes) if isinstance(each, list)][:2]
    return bool(shapes) and all(
        len(each) == SERIES_DIMENSIONS or (len(each) == IMAGE_DIMENSIONS and each[2] == 1)
        for each in shapes
    )
