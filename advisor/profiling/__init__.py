"""Profiles: recorded, imported, compared and exported."""
