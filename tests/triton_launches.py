"""Launches of the kernels beside the fake Triton, as a script makes them, and on copies."""

from gpuadvisor.collectors.script.child.inquiry import OrderedInquiry
from gpuadvisor.tuners.knobs._triton.copies import Copies
from gpuadvisor.tuners.knobs._triton.launched import Launched
from gpuadvisor.tuners.knobs._triton.launches import Kernel

N = 256


def seen(kernels, launched, *args, grid=None, **kwargs):
    """A launch as the script writes it."""
    grid = grid or kernels.blocks_of(N)
    return Launched(launched, grid, args, kwargs, launched[grid])


def copies(kernels, launched, *args, **more):
    """Copies of a launch's arguments; `clock` is what times them."""
    inquiry = OrderedInquiry(None, "nowhere")
    clock = more.pop("clock", None) or inquiry.clock()
    launch = seen(kernels, launched, *args, **more)
    return Copies(inquiry, clock, Kernel.of(launched), launch)
