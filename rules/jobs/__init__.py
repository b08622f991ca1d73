"""What jobs used of GPUs and wasted, out of telemetry alone.

`use` charges frames to jobs, in `slices` of 20 s with their `phases` and one of the `causes`;
`ledger` adds them up, and `advice` says what is worth mending. The daemon loads all of it, so none
may load numpy.
"""
