"""Rules about the machine: one file each with a page beside it, as in `catalogue`.

They stand on telemetry. The daemon asks them all the time, so importing one must not load numpy.
"""
