"""Traces of the torch profiler (Kineto), of any version and any vendor."""
