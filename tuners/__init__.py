"""Tuners: what can be turned, in what order it is tried, and which trial is believed."""

TARGET_MODULES = ("base",)
