"""Telemetry put to use: the daemon, its events and alerts, and what other tools read from it."""
