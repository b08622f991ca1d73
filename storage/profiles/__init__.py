"""Profiles by column, in the store."""
