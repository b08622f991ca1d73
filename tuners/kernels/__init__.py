"""Searching the points of a kernel: what can be launched, what is promising, how good that was."""
