"""Jobs out of a store: gathered, ranked by what they waste, and as a table."""
