"""Profiles: recorded, imported, diagnosed, compared and exported.

`profiler` records a script, `importing` takes what others recorded, `evidence` puts together what
rules look at, and `diagnosing` asks them.
"""
