"""Telemetry put to use: the daemon, its events and alerts, and what other tools read from it.

`daemon` is the process and its loop; `sources` gives frames to whoever asks, `past` what was
before, and `remote` and `remote_past` both of another machine.
"""
