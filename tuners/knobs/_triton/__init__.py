"""Triton kernels as a script launches them, in its own process: the target's half of their knob.

`launches` describes and changes launches, `constants` says which of a kernel's are blocks,
`launched` what may be set in one launch, `copies` repeats one on copies of its arguments, and
`search` answers `gpuadvisor.tuners.kernels.launch_search`, which decides what is tried.
"""

TARGET_MODULES = ("*",)
