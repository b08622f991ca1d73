"""Compiles, checks and times kernels of a kernel file, in a process of the user's Python."""

TARGET_MODULES = ()
