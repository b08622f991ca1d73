"""What a study says in the end, and what of it is kept."""
