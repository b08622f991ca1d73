"""Collectors turn a source of truth (the script itself, NVML, the system) into domain objects."""

TARGET_MODULES = ()
