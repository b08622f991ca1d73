"""Telemetry as a stream of frames: from a sampler in a child process, or from a recording."""
