"""Tune the kernels of a file, or replay a space that was brute-forced before."""
