"""Diagnosing: gathers all that is known of a run, and asks the rules what is wrong with it."""
