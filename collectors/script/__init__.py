"""Run a script in a fresh process, with settings applied, and measure its steps."""

TARGET_MODULES = ("specification",)
