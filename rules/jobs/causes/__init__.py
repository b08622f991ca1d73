"""What a job wastes its GPU on, out of telemetry alone: one file each.

A file has a `CAUSE` and `lost(slice)`: the share of the slice's time (0 to 1) that could be gained
at most, or None where the cause does not hold or cannot be known. A new file is a new cause. The
daemon loads them all, so importing one must not load numpy. Of what is not known nothing follows.
"""
