"""Tuning a script: the wiring of collectors, tuners and storage into one study."""
