"""Tuners: what can be set, in what order it is tried, and when a gain is proven."""

TARGET_MODULES = ("base",)
