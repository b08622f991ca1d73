"""Detectors: one file each, from frames to the events that people want to hear of."""
