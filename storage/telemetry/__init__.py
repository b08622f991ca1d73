"""Telemetry on disk: a file a day of raw samples, and one of roll-ups and events for ever."""
